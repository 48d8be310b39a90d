"""Findings made readable: terminal, HTML, Markdown, LaTeX, JSON. It formats; every number in it was computed elsewhere."""
