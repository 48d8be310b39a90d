"""From a spec to processes: each launcher renders a plan, purely; `supervise.py` alone starts, watches and ends them."""
