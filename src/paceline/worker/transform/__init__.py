"""What is done once to a model before the loop, setting by setting; nothing here launches or measures."""
