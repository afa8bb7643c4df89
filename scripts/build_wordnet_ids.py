"""Build the IDs of WordNet's nouns that ghrq ships, from a finished run of the recipe ``wordnet/best``.

    ghrq train wordnet/best --set quantizer.kind=calibrated --out runs/nouns
    python scripts/build_wordnet_ids.py runs/nouns

Codes and quantizer are those of the run: collisions are resolved by the nearest free tuple.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghrq import Tokenizer
from ghrq.data import wordnet
from ghrq.data.shipped import FOLDER, NOUNS
from ghrq.data.tables.manifest import KEY, Content, complete, describe
from ghrq.models import AncestorTranslator, HierarchyEmbedding
from ghrq.tokenizer import table_file

KINDS = ("person.n.01", "animal.n.01", "plant.n.02", "artifact.n.01", "location.n.01", "act.n.02", "group.n.01")
KINDS += ("state.n.02", "communication.n.02", "cognition.n.01", "attribute.n.02", "substance.n.01")


def kinds_of(nouns: wordnet.Nouns) -> list[str | None]:
    """The first of ``KINDS`` above each noun."""
    above: dict[int, list[int]] = {}
    for child, parent in nouns.edges.tolist():
        above.setdefault(child, []).append(parent)

    def kind(noun: int) -> str | None:
        if nouns.names[noun] in KINDS:
            return nouns.lemmas[noun]
        return next(filter(None, map(kind, above.get(noun, []))), None)

    return [kind(noun) for noun in range(len(nouns.names))]


def tokenizer_of(embedding: HierarchyEmbedding) -> Tokenizer:
    """A tokenizer with the quantizer of the run: one that is fitted on its vectors, with other codebooks."""
    rq, vectors = embedding.quantizer, embedding.vectors().detach().numpy()
    assert rq.radius is not None
    settings = {"kind": rq.kind, "num_stages": rq.num_stages, "codebook_size": rq.codebook_size, "radius": rq.radius}
    tokenizer = Tokenizer(**settings, curvature=rq.curvature, standardize=False, iterations=1).fit(vectors)
    own = tokenizer.quantizer_.state_dict()
    tokenizer.quantizer_.load_state_dict({name: rq.state_dict().get(name, value) for name, value in own.items()})
    assert np.array_equal(tokenizer.encode(vectors), embedding.codes().numpy())
    return tokenizer


def main() -> None:
    """Write the tokenizer and its IDs, and read them again."""
    parser = argparse.ArgumentParser(description="Build the IDs of WordNet's nouns that ghrq ships.")
    parser.add_argument("run", type=Path, help="folder of a finished run of wordnet/best")
    parser.add_argument("--out", type=Path, default=FOLDER / NOUNS, help="the folder to write (default: %(default)s)")
    options = parser.parse_args()
    nouns = wordnet.load()
    codes = AncestorTranslator.from_pretrained(options.run / "models/translator").codes.numpy().astype(np.int32)
    tokenizer = tokenizer_of(HierarchyEmbedding.from_pretrained(options.run / "models/embedding"))
    tokenizer.save(options.out, force=True)
    table_file.write(options.out / "table.json", table_file.Columns("embedding", "synset"), tokenizer)
    names, content = pa.array(nouns.names), Content()
    content.add(names, codes)
    given = describe(tokenizer.fingerprint, "reassign", tokenizer.vocabulary("reassign").sizes)
    columns = {
        "synset": names,
        "codes": pa.FixedSizeListArray.from_arrays(pa.array(codes.ravel(), pa.int32()), codes.shape[1]),
        "kind": pa.array(kinds_of(nouns)).dictionary_encode(),
    }
    manifest = json.dumps(complete(given, content, Content()))
    table = pa.table(columns).replace_schema_metadata({KEY: manifest})
    pq.write_table(table, options.out / "ids.parquet", compression="brotli", compression_level=11)
    for path in sorted(options.out.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
