"""``save_pretrained``, ``from_pretrained`` and ``push_to_hub``, through huggingface_hub where it is installed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:

    class HubMixin:
        """What a model gets from huggingface_hub's mixin, as the type checker sees it."""

        save_pretrained: Callable[..., str | None]
        from_pretrained: ClassVar[Callable[..., Any]]
        push_to_hub: Callable[..., str]

        def __init_subclass__(cls, **kwargs: Any) -> None: ...

else:
    try:
        from huggingface_hub import PyTorchModelHubMixin as HubMixin
    except ImportError:

        def _missing(*args: Any, **kwargs: Any) -> Any:
            raise ImportError(
                "saving to and loading from a folder or the Hub needs huggingface_hub: pip install 'ghrq[hub]'"
            )

        class HubMixin:
            """Stands in for the mixin and says what to install."""

            def __init_subclass__(cls, **kwargs: Any) -> None:
                super().__init_subclass__()

            save_pretrained = push_to_hub = _missing
            from_pretrained = classmethod(_missing)
