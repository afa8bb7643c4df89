"""The tokenizer: encodes embeddings as hierarchical semantic IDs, and decodes them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ghrq import __version__
from ghrq.data import shipped
from ghrq.data.arrays import ArrayRows, as_rows
from ghrq.ids import Policy, Vocabulary
from ghrq.quantizer import ResidualQuantizer
from ghrq.quantizer.kinds import Kind
from ghrq.system import pretrained
from ghrq.system.checks import at_least, check_codes, largest_size, one_of
from ghrq.system.errors import UserError
from ghrq.system.progress import make_progress
from ghrq.system.settings import Precision
from ghrq.tokenizer.engines import ENGINES, Engine
from ghrq.tokenizer.model import EngineName, Model, Settings

# Least number of codes of the tie-break token.
_TIE_BREAK_SIZE = 256

# Rows decoded at once.
_DECODE_ROWS = 8192


class Tokenizer(pretrained.Pretrained, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turn vectors into tuples of codes, coarse to fine, and back: a scikit-learn transformer.

    Examples:
        >>> X = np.random.default_rng(0).standard_normal((500, 8))
        >>> tokenizer = ghrq.Tokenizer(num_stages=3, codebook_size=16).fit(X)
        >>> codes = tokenizer.encode(X)
        >>> codes.shape, tokenizer.decode(codes).shape
        ((500, 3), (500, 8))
        >>> coarse = tokenizer.decode(codes[:, :2])

    ``X (n, d)`` is a numpy array of any type of number, a memory-mapped one (never copied whole), a torch tensor, a
    pandas or polars frame. Vectors are computed in float32.

    Args:
        kind: of the quantizer: ``"ghrq"``, ``"calibrated"``, ``"naive"``, ``"hra-only"``, ``"dhste-only"`` or
            ``"euclidean"``. ``"calibrated"`` differs from ``"ghrq"`` in the training of an autoencoder only.
        num_stages: number of codes of each vector; by default as many as there are sizes, or 4.
        codebook_size: number of codes of each stage: one for all, or a list with one for each, ``[64, 256, 1024]``.
            ``fit`` needs at least as many rows.
        engine: ``"kmeans"``, residual k-means on the ball (seconds to minutes for 100,000 vectors), or
            ``"autoencoder"``, a network trained around the quantizer (RQ-VAE), about five times as long. It fits the
            rows of ``fit`` more closely, and other rows no better. ``"rq-vae"`` is that of the paper, for comparison:
            networks and codes begin at random, the learning rate is constant, vectors are not scaled to ``radius``; it
            needs hundreds of epochs.
        curvature: of the ball; 0 is flat space, as is ``kind="euclidean"``. The scaling to ``radius`` cancels any
            other value.
        radius: vectors are scaled to this median radius on the ball, by default 0.3, and 0.5 with a network. Small ones
            are close to flat space; above 0.3 the error of wide embeddings grows.
        standardize: subtract the mean of each feature and divide by one scale, see
            :class:`ghrq.tokenizer.standard.Standard`. Mean and scale are saved with the model.
        iterations: of k-means, at most.
        hidden: layer sizes of the autoencoder's (and RQ-VAE's) encoder; its decoder has them reversed.
        latent_dim: size of the vectors that the autoencoder quantizes.
        epochs: of the autoencoder's training in ``fit``.
        batch_size: rows of one training step of the autoencoder, and of one step of ``partial_fit``.
        learning_rate: of the autoencoder.
        quantizer_weight: of the quantizer's loss, next to the mean squared error of standardised vectors. Measured on
            sentence embeddings: with a tenth of the default the encoder drifts away from its codes, with ten times as
            much it stays too close.
        commitment_weight: of the commitment in the quantizer's loss.
        codebook_rate: learning rate of the codebooks in the autoencoder; by default the same as ``learning_rate``.
        reconstruction_weight: of the mean squared error in the autoencoder's loss.
        balance: fit the codebooks by balanced k-means: each code is the centre of nearly as many rows as any other of
            its stage. Only the codebooks are balanced: a row still gets its nearest code, whatever the others get, so
            codes are chosen about equally often by rows like those of ``fit``. ``partial_fit`` and the training of
            the autoencoder go on from there without it.
        refine: rounds of k-means that fit the codebooks of all stages together, by a beam search, after each was fitted
            alone. 3 are enough. Vectors are decoded more exactly and neighbours found more often, best with
            ``encode(X, beam=5)``; of k-means only, and not with ``balance``. See :mod:`ghrq.quantizer.refit`.
        precision: of the training of a network. ``"bf16"`` computes its matrix products in half precision, about twice
            as fast on processors and GPUs that have it. Encoding and decoding are in float32 either way.
        seed: the same seed and rows give the same tokenizer. The global random state is neither used nor changed.

    Attributes:
        n_features_in_: d.
        n_samples_seen_: number of rows it was fitted on.
        quantizer_: the :class:`ghrq.ResidualQuantizer`; :meth:`latent` gives its input.
        tie_break_size_: number of codes of the tie-break token, the most items that can share a tuple: 256, or
            the largest codebook_size if that is more, unless you set another one. ``ghrq fit`` makes it at least twice
            what its table needs, for items to come. Saved.
        fit_error_: what ``ghrq fit`` expects of further rows of the same kind, for ``ghrq drift``, see
            :func:`ghrq.tokenizer.bulk.fit_error`; else ``None``. It is saved.

    """

    _format = pretrained.Format("ghrq-tokenizer", "tokenizer")
    _shipped = shipped.FOLDER

    model_: Model
    n_features_in_: int
    tie_break_size_: int
    fit_error_: dict[str, float] | None
    _fitted: Settings
    _engine: Engine | None

    def __init__(
        self,
        *,
        kind: Kind = "ghrq",
        num_stages: int | None = None,
        codebook_size: int | Sequence[int] = 256,
        engine: EngineName = "kmeans",
        curvature: float = 1.0,
        radius: float | None = None,
        standardize: bool = True,
        iterations: int = 10,
        hidden: Sequence[int] = (512, 256, 128),
        latent_dim: int = 256,
        epochs: int = 20,
        batch_size: int = 1024,
        learning_rate: float = 1e-3,
        quantizer_weight: float = 0.1,
        commitment_weight: float = 0.25,
        codebook_rate: float | None = None,
        reconstruction_weight: float = 1.0,
        balance: bool = False,
        refine: int = 0,
        precision: Precision = "fp32",
        seed: int = 0,
    ) -> None:
        self.kind = kind
        self.num_stages = num_stages
        self.codebook_size = codebook_size
        self.engine = engine
        self.curvature = curvature
        self.radius = radius
        self.standardize = standardize
        self.iterations = iterations
        self.hidden = hidden
        self.latent_dim = latent_dim
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.quantizer_weight = quantizer_weight
        self.commitment_weight = commitment_weight
        self.codebook_rate = codebook_rate
        self.reconstruction_weight = reconstruction_weight
        self.balance = balance
        self.refine = refine
        self.precision = precision
        self.seed = seed

    # --- fitting -------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> "Tokenizer":  # noqa: N803
        """Fit on ``X (n, d)`` from scratch; ``y`` is ignored, pipelines pass it."""
        return self._learn(X, whole=True)

    def partial_fit(self, X: Any, y: Any = None) -> "Tokenizer":  # noqa: N803
        """Fit on one more batch ``X (n, d)``: for data that does not fit into memory, or arrives over time.

        The first batch sets the standardisation and the initial codes: make it a random sample, not the first of sorted
        rows. Later ones move the codes to the midpoints of their rows, or train the autoencoder for one epoch. After
        :meth:`fit` it continues from there.
        """
        if not hasattr(self, "model_"):
            return self._learn(X, whole=False)
        settings, rows = self._settings(), self._rows(X)
        if settings != self._fitted:
            raise UserError("parameters changed since this tokenizer was fitted: call fit, or set them back")
        with make_progress().patient_bar("reading", rows.count, "rows") as bar:
            rows.check(bar)  # before the model changes
        random = np.random.default_rng([settings.seed, self.n_samples_seen_])
        with _random_state(random):
            self._engine = self._engine or ENGINES[settings.engine](self.model_, settings)
            self._engine.update(rows, random)
        self.model_.seen += rows.count
        self.fit_error_ = None
        return self

    def _learn(self, table: Any, whole: bool) -> "Tokenizer":
        settings, rows = self._settings(), as_rows(table)
        largest = largest_size(settings.codebook_size)
        if rows.count < largest:
            raise UserError(
                f"codebook_size={largest} codes need at least as many rows to start from, got "
                f"n_samples={rows.count}: pass more rows, or lower codebook_size"
            )
        random = np.random.default_rng([settings.seed, 0])
        with _random_state(random):
            model = Model(rows.dim, settings)
            with make_progress().patient_bar("reading", rows.count, "rows") as bar:
                (model.standard.learn if settings.standardize else ArrayRows.check)(rows, bar)
            engine = ENGINES[settings.engine](model, settings)
            (engine.fit if whole else engine.begin)(rows, random)
        validate_data(self, _names(table, rows), reset=True, skip_check_array=True)
        model.seen += rows.count
        self.model_, self._fitted, self._engine = model.eval(), settings, engine
        self.tie_break_size_ = max(_TIE_BREAK_SIZE, largest)
        self.fit_error_ = None
        return self

    # --- encode, decode ------------------------------------------------------------------------------------

    def encode(self, X: Any, depth: int | None = None, beam: int = 1) -> npt.NDArray[np.int64]:  # noqa: N803
        """The codes of ``X (n, d)``: ``(n, num_stages)`` int64, or only the first ``depth`` of them.

        ``beam > 1`` searches for nearer tuples, see :meth:`ghrq.ResidualQuantizer.encode`.
        """
        rows, rq = self._rows(X), self.quantizer_
        codes = np.empty((rows.count, rq.num_stages if depth is None else depth), dtype=np.int64)
        with make_progress().patient_bar("encoding", rows.count, "rows") as bar, torch.no_grad():
            for start, x in rows.chunks():
                codes[start : start + len(x)] = rq.encode(self.model_.latent(x), depth, beam).numpy()
                bar.advance(len(x))
        return codes

    def decode(self, ids: Any) -> npt.NDArray[np.float32]:
        """Decode codes ``(n, depth)`` into vectors ``(n, d)``, for any depth from 1 to ``num_stages``."""
        return self._decode(ids, self.quantizer_.decode)

    def prefixes(self, ids: Any) -> npt.NDArray[np.float32]:
        """:meth:`decode` at every depth at once: codes ``(n, depth)`` -> ``(n, depth, d)``."""
        return self._decode(ids, self.quantizer_.prefixes)

    def latent(self, X: Any) -> Tensor:  # noqa: N803
        """The input of ``quantizer_``: ``X (n, d)`` standardised and encoded, ``(n, dim)`` float32."""
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

    def vocabulary(self, collisions: Policy = "append") -> Vocabulary:
        """The tokens of a language model for the IDs: sizes and offsets of the stages, special tokens, total size.

        ``collisions`` is how equal tuples are resolved: with ``"append"`` the last stage is the tie-break token.
        """
        one_of("collisions", collisions, get_args(Policy))
        sizes = list(self.quantizer_.sizes)
        tie_break = collisions == "append"
        return Vocabulary.of([*sizes, self.tie_break_size_] if tie_break else sizes, tie_break)

    def _decode(self, ids: Any, decode: Callable[[Tensor], Tensor]) -> npt.NDArray[np.float32]:
        codes = ids.detach().cpu() if isinstance(ids, Tensor) else torch.from_numpy(np.array(ids))
        if codes.dim() != 2:
            raise UserError(f"expected codes of shape (n, depth), got shape {tuple(codes.shape)}")
        check_codes(codes, self.quantizer_.num_stages, self.quantizer_.sizes)  # -1 is no code of an ID
        parts = []
        with make_progress().patient_bar("decoding", len(codes), "rows") as bar, torch.no_grad():
            for part in codes.split(_DECODE_ROWS):
                parts.append(self.model_.vectors(decode(part)))
                bar.advance(len(part))
        return torch.cat(parts).numpy()

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits that tell tokenizers apart: IDs of one fingerprint mean the same."""
        check_is_fitted(self)
        return self.model_.fingerprint()

    # --- files ---------------------------------------------------------------------------------------------

    def save(self, folder: str | Path, force: bool = False) -> None:
        """Write config.json and model.safetensors to ``folder`` atomically.

        IDs belong to one tokenizer, so an older one is only replaced with ``force``, and other files never.
        """
        rq = self.quantizer_
        at_least("tie_break_size_", self.tie_break_size_, 1, whole=True)
        names = getattr(self, "feature_names_in_", None)
        config = {
            "ghrq": __version__,
            "params": asdict(self._fitted),
            "convention": {"curvature": rq.curvature, "aggregation": rq.aggregation},
            "n_features": self.n_features_in_,
            "feature_names": None if names is None else list(names),
            "tie_break_size": self.tie_break_size_,
            "fit_error": self.fit_error_,
        }
        pretrained.save(Path(folder), self._format, config, self.model_.state_dict(), force)

    save_pretrained = save

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Read a folder that :meth:`save` wrote. Damaged, incomplete or other files are errors."""
        config, weights = pretrained.load(Path(folder), cls._format)
        try:
            settings = Settings(**config["params"])
            with _random_state(np.random.default_rng(0)):
                model = Model(config["n_features"], settings)
            pretrained.set_weights(model, weights, Path(folder))
            least = max(_TIE_BREAK_SIZE, largest_size(settings.codebook_size))
            tie_break = config.get("tie_break_size", least)  # not in ghrq 0.1.0
            at_least("tie_break_size", tie_break, 1, whole=True)
            names, fit_error = _feature_names(config), _fit_error(config)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise pretrained.not_fitting(Path(folder), cls._format, error) from error
        own = {"curvature": model.quantizer.curvature, "aggregation": model.quantizer.aggregation}
        if config["convention"] != own:
            raise UserError(
                f"{Path(folder) / pretrained.CONFIG}: this tokenizer was fitted under the convention "
                f"{config['convention']}, its parameters mean {own} here: use the ghrq that wrote it, or fit the "
                "tokenizer again"
            )
        tokenizer = cls(**vars(settings))
        tokenizer.n_features_in_ = config["n_features"]
        if names is not None:
            tokenizer.feature_names_in_ = np.array(names, dtype=object)
        tokenizer.model_, tokenizer._fitted, tokenizer._engine = model.eval(), settings, None
        tokenizer.tie_break_size_, tokenizer.fit_error_ = tie_break, fit_error
        return tokenizer

    _load = load

    # --- internals -----------------------------------------------------------------------------------------

    @property
    def quantizer_(self) -> ResidualQuantizer:
        """The quantizer of the fitted tokenizer."""
        check_is_fitted(self)
        return self.model_.quantizer

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows it was fitted on."""
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

    def _rows(self, table: Any) -> ArrayRows:
        """The rows of a table, which must have the features it was fitted on."""
        check_is_fitted(self)
        rows = as_rows(table)
        if rows.dim != self.n_features_in_:
            raise UserError(
                f"X has {rows.dim} features, but Tokenizer is expecting {self.n_features_in_} features as input: "
                "pass vectors of the kind it was fitted on"
            )
        validate_data(self, _names(table, rows), reset=False, skip_check_array=True)
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_engine": None}  # optimisers are not pickled

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # vectors in, codes out
        return tags


def _names(table: Any, rows: ArrayRows) -> Any:
    """What scikit-learn reads the names and number of features from: a frame, or an array of the shape."""
    return table if hasattr(table, "columns") else np.broadcast_to(np.float32(0.0), (rows.count, rows.dim))


def _feature_names(config: dict[str, Any]) -> list[str] | None:
    """The names of the columns it was fitted on, out of a saved config; anything but texts is an error."""
    names: Any = config["feature_names"]
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("feature_names is not a list of texts")
    if len(names) != config["n_features"]:
        raise ValueError(f"feature_names has {len(names)} names, expected {config['n_features']}")
    return names


def _fit_error(config: dict[str, Any]) -> dict[str, float] | None:
    """The error of the fit out of a saved config, if it has one."""
    found: Any = config.get("fit_error")
    if found is None:
        return None
    if not isinstance(found, dict) or set(found) != {"error", "variance"}:
        raise ValueError("fit_error is not a table of error and variance")
    for name, value in found.items():
        at_least(f"{name} of fit_error", value, 0)
    return found


@contextmanager
def _random_state(random: np.random.Generator) -> Iterator[None]:
    """Seed torch's generator from ``random`` inside the context, and restore its state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(random.integers(2**63)))
        yield
