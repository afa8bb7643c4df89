"""Models as commands take them: a model folder, or a run, which has its model in ``models/``."""

from pathlib import Path
from typing import TypeVar

from ghrq.system.errors import UserError, shell
from ghrq.system.files import restore
from ghrq.system.pretrained import Pretrained

Model = TypeVar("Model", bound=Pretrained)


def load_model(path: Path, kind: type[Model], task: str, name: str) -> Model:
    """The model in a folder, or the model called ``name`` of a run of ``task``."""
    from ghrq.training.run import Run

    restore(path)
    if (path / "config.json").is_file():
        return kind.from_pretrained(path)
    if not (path / "recipe.toml").is_file():
        if not path.exists():
            raise UserError(f"there is no folder {path}: name that of a model or of a run (ghrq runs lists them)")
        raise UserError(
            f"{path} is not a model and not a run, it has neither config.json nor recipe.toml: name the folder of one "
            "(ghrq runs lists runs)"
        )
    run, saved = Run.open(path), path / "models" / name
    if run.task != task:
        raise UserError(f"{path} is a run of the task '{run.task}': name one of the task '{task}'")
    restore(saved)
    again = f"to write it: {shell('ghrq', 'eval', path)}"
    if not saved.is_dir():
        remedy = f"first {run.train_again}" if run.results is None else again
        raise UserError(f"{path} has no {saved.relative_to(path)}: {remedy}")
    try:
        return kind.from_pretrained(saved)
    except UserError as error:
        raise UserError(f"{error}; {again}") from error
