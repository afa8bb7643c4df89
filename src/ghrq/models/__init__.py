"""Trained models by name: ``ghrq.models.ImageTokenizer.from_pretrained("runs/x/models/tokenizer")``.

Each is a folder with config.json and model.safetensors, or a repository of the Hugging Face Hub. Imported when first
used: ``import ghrq.models`` does not wait for torch. :class:`ghrq.system.pretrained.Pretrained` shows how to write one.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghrq.models.ancestors import AncestorTranslator
    from ghrq.models.audio_codec import AudioCodec
    from ghrq.models.hierarchy import HierarchyEmbedding
    from ghrq.models.image_prior import ImagePrior
    from ghrq.models.image_tokenizer import ImageTokenizer
    from ghrq.models.recommender import Recommender

__all__ = ["AncestorTranslator", "AudioCodec", "HierarchyEmbedding", "ImagePrior", "ImageTokenizer", "Recommender"]

_MODULES = dict(
    zip(
        __all__, ("ancestors", "audio_codec", "hierarchy", "image_prior", "image_tokenizer", "recommender"), strict=True
    )
)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ghrq.models' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ghrq.models.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
