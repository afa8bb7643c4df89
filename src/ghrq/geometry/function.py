"""Autograd functions with derivatives of their own."""

import inspect
from typing import Any

import torch


class Function(torch.autograd.Function):
    """``torch.autograd.Function`` with ``setup_context``, for less: torch works out ``forward``'s signature every time.

    That takes as long as ten small operations. Known beforehand, it takes none.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]
