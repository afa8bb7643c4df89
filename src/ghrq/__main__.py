"""``python -m ghrq``; and so ``torchrun -m ghrq train …`` and ``accelerate launch -m ghrq train …``."""

from ghrq.cli import main

if __name__ == "__main__":
    main()
