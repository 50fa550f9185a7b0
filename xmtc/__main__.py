"""Entry point of `python -m xmtc` and `torchrun -m xmtc`."""

from xmtc.cli import main

if __name__ == "__main__":
    main()
