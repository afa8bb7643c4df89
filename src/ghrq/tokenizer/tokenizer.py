"""The tokenizer: a table of embeddings in, hierarchical semantic IDs out, and back."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import (  # type: ignore[import-untyped]
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
from torch import Tensor

from ghrq import __version__
from ghrq.data.arrays import Rows, as_rows
from ghrq.quantizer import ResidualQuantizer
from ghrq.quantizer.residual import Kind
from ghrq.system import pretrained
from ghrq.system.errors import UserError
from ghrq.system.progress import make_progress
from ghrq.tokenizer.engines import ENGINES, Engine
from ghrq.tokenizer.model import EngineName, Model, Settings

# Codes that are turned back into vectors at a time.
_DECODE_ROWS = 8192


class Tokenizer(pretrained.Pretrained, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turn vectors into tuples of codes, coarse to fine, and back: a scikit-learn transformer.

    >>> tokenizer = Tokenizer(num_stages=4, codebook_size=256).fit(X)
    >>> ids = tokenizer.encode(X)      # (n, 4)
    >>> X_hat = tokenizer.decode(ids)  # (n, d); decode(ids[:, :2]) is the coarse version

    ``X (n, d)`` is a numpy array of any type of number, a memory-mapped one (never copied whole), a torch tensor, a
    pandas or polars frame. Vectors are computed in float32.

    Args:
        kind: of the quantizer: ``"ghrq"``, ``"naive"``, ``"hra-only"``, ``"dhste-only"`` or ``"euclidean"``.
        num_stages: codes of each vector.
        codebook_size: codes to choose from at each stage; ``fit`` needs at least as many rows.
        engine: ``"kmeans"``, residual k-means on the ball (seconds to minutes for 100,000 vectors), or
            ``"autoencoder"``, a network trained around the quantizer (RQ-VAE).
        curvature: of the ball; 0 is flat space, as is ``kind="euclidean"``. Vectors are scaled so that their median
            radius on the ball is 0.5.
        standardize: subtract the mean of each feature and divide by one scale, see
            :class:`ghrq.tokenizer.standard.Standard`. Mean and scale are saved with the model.
        iterations: rounds of k-means, at most.
        hidden: layer sizes of the autoencoder's encoder; its decoder has them in reverse.
        latent_dim: of the vectors that the autoencoder's quantizer sees.
        epochs: how often ``fit`` goes through the rows to train the autoencoder.
        batch_size: rows of one step of the autoencoder's training, and of one step of ``partial_fit``.
        learning_rate: of the autoencoder.
        seed: the same seed and rows give the same tokenizer. The global random state plays no part and stays.

    Attributes:
        n_features_in_: d.
        n_samples_seen_: how many rows it was fitted on.
        quantizer_: the :class:`ghrq.ResidualQuantizer`; :meth:`latent` says what goes into it.

    """

    _format = pretrained.Format("ghrq-tokenizer", "tokenizer")

    model_: Model
    n_features_in_: int
    _fitted: Settings
    _engine: Engine | None

    def __init__(
        self,
        *,
        kind: Kind = "ghrq",
        num_stages: int = 4,
        codebook_size: int = 256,
        engine: EngineName = "kmeans",
        curvature: float = 1.0,
        standardize: bool = True,
        iterations: int = 10,
        hidden: Sequence[int] = (512, 256, 128),
        latent_dim: int = 32,
        epochs: int = 100,
        batch_size: int = 1024,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self.kind = kind
        self.num_stages = num_stages
        self.codebook_size = codebook_size
        self.engine = engine
        self.curvature = curvature
        self.standardize = standardize
        self.iterations = iterations
        self.hidden = hidden
        self.latent_dim = latent_dim
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed

    # --- learning ------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> "Tokenizer":  # noqa: N803
        """Learn from ``X (n, d)``, from scratch; ``y`` is there for pipelines and not looked at."""
        return self._learn(X, whole=True)

    def partial_fit(self, X: Any, y: Any = None) -> "Tokenizer":  # noqa: N803
        """Learn from one more batch ``X (n, d)`` of rows: for data that does not fit into memory, or arrives over time.

        The first batch decides about the standardisation and where the codes start; make it a fair sample, not the
        first of sorted rows. Later ones move the codes to the midpoints of the rows that choose them, or train the
        autoencoder for one epoch. After :meth:`fit` it goes on from there.
        """
        if not hasattr(self, "model_"):
            return self._learn(X, whole=False)
        settings, rows = self._settings(), self._rows(X)
        if settings != self._fitted:
            raise UserError("parameters changed since this tokenizer was fitted: call fit, or set them back")
        with make_progress().patient_bar("reading", rows.count, "rows") as bar:
            rows.check(bar)  # before anything changes
        random = np.random.default_rng([settings.seed, self.n_samples_seen_])
        with _random_state(random):
            self._engine = self._engine or ENGINES[settings.engine](self.model_, settings)
            self._engine.update(rows, random)
        self.model_.seen += rows.count
        return self

    def _learn(self, table: Any, whole: bool) -> "Tokenizer":
        settings, rows = self._settings(), as_rows(table)
        if rows.count < settings.codebook_size:
            raise UserError(
                f"codebook_size={settings.codebook_size} codes need at least as many rows to start from, got "
                f"n_samples={rows.count}: pass more rows, or lower codebook_size"
            )
        random = np.random.default_rng([settings.seed, 0])
        with _random_state(random):
            model = Model(rows.dim, settings)
            with make_progress().patient_bar("reading", rows.count, "rows") as bar:
                (model.standard.learn if settings.standardize else Rows.check)(rows, bar)
            engine = ENGINES[settings.engine](model, settings)
            (engine.fit if whole else engine.begin)(rows, random)
        validate_data(self, _names(table, rows), reset=True, skip_check_array=True)
        model.seen += rows.count
        self._accept(model, settings, engine)
        return self

    # --- codes and back ------------------------------------------------------------------------------------

    def encode(self, X: Any, depth: int | None = None, beam: int = 1) -> npt.NDArray[np.int64]:  # noqa: N803
        """The codes of ``X (n, d)``: ``(n, num_stages)`` int64, or only the first ``depth`` of them.

        ``beam > 1`` looks for nearer tuples, see :meth:`ghrq.ResidualQuantizer.encode`.
        """
        rows, rq = self._rows(X), self.quantizer_
        codes = np.empty((rows.count, rq.num_stages if depth is None else depth), dtype=np.int64)
        with make_progress().patient_bar("encoding", rows.count, "rows") as bar, torch.no_grad():
            for start, x in rows.chunks():
                codes[start : start + len(x)] = rq.encode(self.model_.latent(x), depth, beam).numpy()
                bar.advance(len(x))
        return codes

    def decode(self, ids: Any) -> npt.NDArray[np.float32]:
        """The vectors ``(n, d)`` that codes ``(n, depth)`` stand for, for any depth from 1 to ``num_stages``."""
        return self._decode(ids, self.quantizer_.decode)

    def prefixes(self, ids: Any) -> npt.NDArray[np.float32]:
        """:meth:`decode` at every depth at once: codes ``(n, depth)`` -> ``(n, depth, d)``."""
        return self._decode(ids, self.quantizer_.prefixes)

    def latent(self, X: Any) -> Tensor:  # noqa: N803
        """What goes into ``quantizer_``: ``X (n, d)`` standardised and encoded, ``(n, dim)`` float32."""
        rows = self._rows(X)
        z = torch.empty(rows.count, self.quantizer_.dim)
        with torch.no_grad():
            for start, x in rows.chunks():
                z[start : start + len(x)] = self.model_.latent(x)
        return z

    def transform(self, X: Any) -> npt.NDArray[np.int64]:  # noqa: N803
        """:meth:`encode` at full depth, under the name that pipelines call."""
        return self.encode(X)

    def inverse_transform(self, X: Any) -> npt.NDArray[np.float32]:  # noqa: N803
        """:meth:`decode`, under the name that pipelines call."""
        return self.decode(X)

    def _decode(self, ids: Any, decode: Callable[[Tensor], Tensor]) -> npt.NDArray[np.float32]:
        codes = ids.detach().cpu() if isinstance(ids, Tensor) else torch.from_numpy(np.array(ids))
        if codes.dim() != 2:
            raise UserError(f"expected codes of shape (n, depth), got shape {tuple(codes.shape)}")
        parts = []
        with make_progress().patient_bar("decoding", len(codes), "rows") as bar, torch.no_grad():
            for part in codes.split(_DECODE_ROWS):
                parts.append(self.model_.vectors(decode(part)))
                bar.advance(len(part))
        return torch.cat(parts).numpy()

    # --- files ---------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write ``folder`` with config.json and model.safetensors: all of it or nothing, in place of an older one."""
        rq = self.quantizer_
        names = getattr(self, "feature_names_in_", None)
        config = {
            "ghrq": __version__,
            "params": asdict(self._fitted),
            "convention": {"curvature": rq.curvature, "aggregation": rq.aggregation},
            "n_features": self.n_features_in_,
            "feature_names": None if names is None else list(names),
        }
        pretrained.save(Path(folder), self._format, config, self.model_.state_dict())

    save_pretrained = save

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Read what :meth:`save` wrote. Damaged, incomplete or foreign files are refused."""
        config, weights = pretrained.load(Path(folder), cls._format)
        try:
            settings = Settings(**config["params"])
            with _random_state(np.random.default_rng(0)):
                model = Model(config["n_features"], settings)
            model.load_state_dict(weights)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise pretrained.not_fitting(Path(folder), cls._format, error) from error
        own = {"curvature": model.quantizer.curvature, "aggregation": model.quantizer.aggregation}
        if config["convention"] != own:
            raise UserError(
                f"{Path(folder) / pretrained.CONFIG}: this tokenizer was fitted under the convention "
                f"{config['convention']}, its parameters mean {own} here: use the ghrq that wrote it, or fit the "
                "tokenizer anew"
            )
        tokenizer = cls(**config["params"])
        tokenizer.n_features_in_ = config["n_features"]
        if config["feature_names"] is not None:
            tokenizer.feature_names_in_ = np.array(config["feature_names"], dtype=object)
        tokenizer._accept(model, settings)
        return tokenizer

    _load = load

    # --- inside --------------------------------------------------------------------------------------------

    @property
    def quantizer_(self) -> ResidualQuantizer:
        """The quantizer of the fitted tokenizer."""
        check_is_fitted(self)
        return self.model_.quantizer

    @property
    def n_samples_seen_(self) -> int:
        """How many rows it was fitted on."""
        check_is_fitted(self)
        return int(self.model_.seen)

    @property
    def _n_features_out(self) -> int:
        return self.quantizer_.num_stages

    def _settings(self) -> Settings:
        try:
            return Settings(**self.get_params(deep=False))
        except ValueError as error:
            raise UserError(str(error)) from error

    def _rows(self, table: Any) -> Rows:
        """The rows of a table that must be like those it was fitted on."""
        check_is_fitted(self)
        rows = as_rows(table)
        if rows.dim != self.n_features_in_:
            raise UserError(
                f"X has {rows.dim} features, but Tokenizer is expecting {self.n_features_in_} features as input: "
                "pass vectors of the kind it was fitted on"
            )
        validate_data(self, _names(table, rows), reset=False, skip_check_array=True)
        return rows

    def _accept(self, model: Model, settings: Settings, engine: Engine | None = None) -> None:
        self.model_, self._fitted, self._engine = model.eval(), settings, engine

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_engine": None}  # optimisers do not travel

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # vectors in, codes out
        return tags


def _names(table: Any, rows: Rows) -> Any:
    """What scikit-learn reads the names and the number of features from: a frame, or a mere shape."""
    return table if hasattr(table, "columns") else np.broadcast_to(np.float32(0.0), (rows.count, rows.dim))


@contextmanager
def _random_state(random: np.random.Generator) -> Iterator[None]:
    """Let ``random`` decide about torch's random numbers inside; outside, they go on as if nothing had been."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(random.integers(2**63)))
        yield
