"""`python -m xmtc`, and what `torchrun -m xmtc` starts."""

from xmtc.cli import main

if __name__ == "__main__":
    main()
