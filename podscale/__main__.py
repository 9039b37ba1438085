"""``python -m podscale`` is the ``podscale`` program."""

from podscale.cli.entry import main

if __name__ == "__main__":
    main()
