"""``python -m agentrt``: the command line."""

from agentrt.cli.main import main

if __name__ == "__main__":
    main()
