"""The command line: one file a command; parse, call, print.

Everything heavy is imported inside a command, so that ``agentrt --help`` and shell completion answer at once and
``agentrt check`` never loads torch.
"""
