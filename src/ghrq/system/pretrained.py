"""Models as folders: config.json and model.safetensors, written atomically, checked when read, shared on the Hub.

config.json names the format, its version and the checksum of the weights; the header of the weights has the checksum
of the config. So neither file can change, or come from another model, without an error.
"""

import hashlib
import json
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import safetensors
import safetensors.torch
import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from torch import Tensor, nn

from ghrq.system import files
from ghrq.system.errors import UserError, require
from ghrq.system.settings import Section

CONFIG, WEIGHTS = "config.json", "model.safetensors"

_REMAKE = "its training diverged, or somebody changed it; make or fetch it again"


class Format(NamedTuple):
    """What config.json says of the kind of model."""

    name: str
    """Such as ``ghrq-tokenizer``."""
    title: str
    """What messages call the model, such as ``tokenizer``."""
    version: int = 1
    plain: bool = False
    """Whether folders without format and checksums are read too: ghrq 0.1.0 saved with huggingface_hub's mixin."""

    @property
    def remedy(self) -> str:
        """What to do about a damaged folder."""
        return f"fetch or make the {self.title} again"


def save(folder: Path, form: Format, config: dict[str, Any], weights: dict[str, Tensor], force: bool = False) -> None:
    """Write a model to ``folder``, as a whole or not at all. See :func:`check_replaceable` for ``force``."""
    check_replaceable(folder, form.title, force)
    _check_finite(weights, f"the {form.title}")
    content = {"format": form.name, "version": form.version, **files.plain(config)}
    tensors = {name: tensor.detach().contiguous() for name, tensor in weights.items()}
    with files.telling(folder):
        files.link_target(folder).parent.mkdir(parents=True, exist_ok=True)
        with files.draft(folder, replace=force) as draft:
            draft.mkdir()
            # Not save_file: it makes files that other users cannot read, and its errors do not say what the disk says.
            files.write(draft / WEIGHTS, safetensors.torch.save(tensors, metadata={"config": checksum(content)}))
            files.write_json(draft / CONFIG, content | {"sha256": {WEIGHTS: files.sha256(draft / WEIGHTS)}})


def load(folder: Path, form: Format) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and weights that :func:`save` wrote; a :class:`UserError` if the folder holds anything else."""
    files.restore(folder)
    for path in (folder / CONFIG, folder / WEIGHTS):
        if not path.is_file():
            expected = f"{form.title}s are folders with {CONFIG} and {WEIGHTS}"
            raise UserError(f"there is no file {path}: {expected}; {_inner_model(folder, form) or form.remedy}")
    path = folder / CONFIG
    config = files.read_json(path, form.remedy)
    if form.plain and "format" not in config:
        return config, _read_weights(folder / WEIGHTS, form)[0]
    if config.get("format") != form.name:
        found = f"its format is {config.get('format')!r}, not {form.name!r}"
        raise UserError(f"{path} does not describe {form.title}s: {found}: name the folder of one")
    if config.get("version") != form.version:
        raise UserError(
            f"{path} has version {config.get('version')} of the format, this ghrq reads version {form.version}: "
            f"use the ghrq that wrote it, or make the {form.title} again"
        )
    sums = config.pop("sha256", None)
    path = folder / WEIGHTS
    if not isinstance(sums, dict) or sums.get(WEIGHTS) != files.sha256(path):
        raise UserError(f"{path} is damaged or of another {form.title}: {CONFIG} has another checksum; {form.remedy}")
    weights, digest = _read_weights(path, form)
    if digest != checksum(config):
        raise UserError(f"{folder / CONFIG} is not what was written together with {WEIGHTS}: {form.remedy}")
    return {key: value for key, value in config.items() if key not in ("format", "version")}, weights


class Pretrained:
    """Mixin for models: ``save_pretrained``, ``from_pretrained`` and ``push_to_hub``.

    For an ``nn.Module`` that is made from its config (a ``Section``) alone, and keeps it. A model of one's own::

        class MyModel(nn.Module, Pretrained):
            Config, _format = MyConfig, Format("my-model", "small model")
            def __init__(self, config: MyConfig) -> None:
                super().__init__()
                self.config, self.layer = config, nn.Linear(config.width, 1)
    """

    _format: ClassVar[Format]
    _shipped: ClassVar[Path | None] = None
    """The folder of the models that come with ghrq, by name."""
    Config: ClassVar[type[Section]]
    config: Any

    def save_pretrained(self, folder: str | Path, force: bool = False) -> None:
        """Write ``folder`` with config.json and model.safetensors, atomically.

        A model of the same class there is replaced: training may save again and again. One of another class is only
        replaced with ``force``, and other files never.
        """
        assert isinstance(self, nn.Module)
        force = force or _is_format(Path(folder) / CONFIG, self._format)
        save(Path(folder), self._format, self._saved_config(), self.state_dict(), force)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
    ) -> Self:
        """Load a folder, a model that comes with ghrq, or ``owner/name`` of the Hugging Face Hub: the first there is.

        ``local_files_only``: from the cache of the Hub alone.
        """
        files.restore(Path(name))
        if Path(name).is_dir():
            return cls._load(Path(name))
        if cls._shipped is not None and "/" not in str(name) and (cls._shipped / name / CONFIG).is_file():
            return cls._load(cls._shipped / name)
        if Path(name).is_absolute() or str(name).startswith((".", "~")) or str(name).count("/") > 1:
            raise UserError(f"there is no folder {Path(name).absolute()}: name that of the {cls._format.title}")
        with _hub_errors(f"{name} is not a folder here, and cannot be fetched from the Hub"):
            folder = require("huggingface_hub", "hub").snapshot_download(
                str(name),
                revision=revision,
                token=token,
                cache_dir=cache_dir,
                local_files_only=local_files_only,
                allow_patterns=[CONFIG, WEIGHTS],
            )
        return cls._load(Path(folder))

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | None = None,
        commit_message: str = "",
    ) -> str:
        """Upload to the Hugging Face Hub as ``repo_id``, which is created if it does not exist. Returns its address."""
        api = require("huggingface_hub", "hub").HfApi(token=token)
        message = commit_message or f"Upload {self._format.title}"
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "model"
            self.save_pretrained(folder)
            with _hub_errors(f"cannot upload the {self._format.title} to the Hub as {repo_id}"):
                url = api.create_repo(repo_id, private=private, exist_ok=True)
                api.upload_folder(repo_id=url.repo_id, folder_path=folder, revision=revision, commit_message=message)
        return str(url)

    def _saved_config(self) -> dict[str, Any]:
        """What config.json says of this model."""
        return self.config.model_dump(mode="json")

    @classmethod
    def _from_config(cls, config: dict[str, Any]) -> Self:
        """An untrained model from the content of config.json; a ``ValueError`` if that does not describe one."""
        return cls(cls.Config.model_validate(config))  # type: ignore[call-arg]

    def _unpacked(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The state that the weights of a file stand for."""
        return weights

    @classmethod
    def _load(cls, folder: Path) -> Self:
        config, weights = load(folder, cls._format)
        try:
            with torch.random.fork_rng(devices=[]):  # the initial values are random, and replaced
                model = cls._from_config(config)
            assert isinstance(model, nn.Module)
            set_weights(model, model._unpacked(weights), folder)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise not_fitting(folder, cls._format, error) from error
        model.eval()
        return model


def set_weights(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Load ``weights`` of ``folder`` into ``model``; points that are not on their manifold are an error."""
    for name, own in model.state_dict().items():
        if name in weights and weights[name].is_floating_point() != own.is_floating_point():
            raise ValueError(f"'{name}' is of type {weights[name].dtype}, expected {own.dtype}")
    model.load_state_dict(weights)
    for name, parameter in model.named_parameters():
        manifold = getattr(parameter, "manifold", None)  # geoopt's
        if manifold is not None and not manifold.check_point_on_manifold(parameter):
            raise UserError(f"'{name}' in {folder / WEIGHTS} has points outside of the {manifold.name}: {_REMAKE}")


def check_replaceable(
    folder: Path, title: str, force: bool, names: Collection[str] = (CONFIG, WEIGHTS), option: str = "force=True"
) -> None:
    """Raise an error unless a model called ``title`` may be written to ``folder``.

    A missing or empty folder is free. Without ``force`` nothing is replaced; with it, only files of these ``names``.
    ``option`` is how the user gives ``force``.
    """
    files.check_not_current(folder)
    files.link_target(folder)
    files.restore(folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder for the {title}")
    held = {path.name: path.is_file() for path in folder.iterdir()}
    others = sorted(name for name, is_file in held.items() if name not in names or not is_file)
    if others:
        raise UserError(f"{folder} holds other files, such as {others[0]}: name a new folder, or remove them first")
    if held and not force:
        raise UserError(f"{folder} holds {min(held)} already: name a new folder, or replace it all with {option}")


def not_fitting(folder: Path, form: Format, error: Exception) -> UserError:
    """The error of a config that this version cannot build, or of weights that do not fit it."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, ValidationError):
        reason = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    else:
        reason = (str(error).splitlines() or ["?"])[-1].strip()  # torch reports every tensor on a line of its own
    return UserError(f"{folder / CONFIG} and its weights do not fit together ({reason}): make the {form.title} again")


def _read_weights(path: Path, form: Format) -> tuple[dict[str, Tensor], str | None]:
    """The tensors, and the checksum of the config that was written with them."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            digest = (file.metadata() or {}).get("config")
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}): {form.remedy}") from error
    _check_finite(weights, str(path))
    return weights, digest


def _check_finite(weights: dict[str, Tensor], where: str) -> None:
    """Raise an error if there are NaN or infinite numbers: all codes would be 0, without a word."""
    for name, tensor in weights.items():
        small = tensor.is_floating_point() and tensor.dtype.itemsize < 2  # few functions know these types
        if not (tensor.float() if small else tensor).isfinite().all():
            raise UserError(f"'{name}' in {where} has NaN or infinite values: {_REMAKE}")


@contextmanager
def _hub_errors(problem: str) -> Iterator[None]:
    """Turn errors of ``huggingface_hub`` into a :class:`UserError` that begins with ``problem``."""
    network = require("huggingface_hub.errors", "hub").HfHubHTTPError.__bases__  # its network library may change
    try:
        yield
    except (OSError, ValueError, *network) as error:
        reason = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
        raise UserError(f"{problem} ({reason}): check the name (owner/name), the network and the token") from error


def _inner_model(folder: Path, form: Format) -> str:
    """A hint at a model of this format, if ``folder`` is that of a run or its folder ``models``."""
    near = sorted((*folder.glob(f"*/{CONFIG}"), *folder.glob(f"models/*/{CONFIG}")))
    fits = (path.parent for path in near if path.is_file() and f'"{form.name}"' in path.read_text("utf-8", "ignore"))
    return next((f"did you mean {model}?" for model in fits), "")


def _is_format(config: Path, form: Format) -> bool:
    """Whether ``config`` is that of a model of this format."""
    return config.is_file() and files.read_json(config, "remove it").get("format") == form.name


def digest(name: str, weights: dict[str, Tensor]) -> str:
    """A SHA-256 of ``name`` and all ``weights``, whatever their device and order."""
    found = hashlib.sha256(name.encode())
    for key, tensor in sorted(weights.items()):
        found.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().numpy().data)
    return found.hexdigest()


def checksum(config: dict[str, Any]) -> str:
    """The checksum of what a config says, whatever its layout."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
