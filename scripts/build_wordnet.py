"""Build the WordNet nouns that ghrq ships from a Princeton ``dict`` folder with ``data.noun`` and ``index.noun``.

    python scripts/build_wordnet.py /usr/share/wordnet

Debian's package ``wordnet-base`` has both files. The result is the same to the byte for the same nouns (and xz).
"""

import argparse
from pathlib import Path

from ghrq.data import wordnet

SHIPPED = Path(__file__).parents[1] / "src/ghrq/data/files/wordnet-nouns.json.xz"


def main() -> None:
    """Read, write, and read again what was written."""
    parser = argparse.ArgumentParser(description="Build the WordNet nouns that ghrq ships.")
    parser.add_argument("folder", type=Path, help="Princeton dict folder with data.noun and index.noun")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the file to write (default: %(default)s)")
    options = parser.parse_args()
    nouns = wordnet.from_dict(options.folder)
    wordnet.save(nouns, options.out)
    again = wordnet.load(options.out)
    instances = int(again.instance.sum())
    print(f"{options.out}: {options.out.stat().st_size:,} bytes")
    print(f"{len(again.names):,} synsets, {len(again.edges) - instances:,} hypernym and {instances:,} instance edges")


if __name__ == "__main__":
    main()
