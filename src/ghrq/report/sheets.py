"""Many small images on one sheet, as PNG."""

import base64
import io
from dataclasses import dataclass, field
from html import escape

import torch
from torch import Tensor

from ghrq.report.template import render, safe
from ghrq.system.errors import require

# Pixels between images, and how wide a sheet is at least: small images are enlarged without smoothing.
_GAP, _WIDTH = 1, 600


def sheet(images: Tensor) -> bytes:
    """Bytes ``(rows, columns, channels, height, width)`` of pixels as a PNG file; 1 channel is grey, 3 are colour."""
    rows, columns, channels, height, width = images.shape
    framed = torch.full((rows, columns, channels, height + _GAP, width + _GAP), 255, dtype=torch.uint8)
    framed[..., :height, :width] = images
    joined = framed.permute(0, 3, 1, 4, 2).reshape(rows * (height + _GAP), columns * (width + _GAP), channels)
    larger = max(1, round(_WIDTH / joined.shape[1]))
    pixels = joined[:-_GAP, :-_GAP].repeat_interleave(larger, 0).repeat_interleave(larger, 1)
    written = io.BytesIO()
    image = require("PIL.Image", "image").fromarray(pixels.squeeze(-1).contiguous().numpy())
    image.save(written, format="png", optimize=True)
    return written.getvalue()


@dataclass(frozen=True)
class Sheet:
    """A sheet with its caption, for a page."""

    caption: str
    png: bytes = field(repr=False)

    def html(self) -> str:
        """A ``<figure>`` with the sheet in it."""
        data = base64.b64encode(self.png).decode()
        source, style = f"data:image/png;base64,{data}", "width:100%;image-rendering:pixelated"
        words = self.caption.replace("*", "")  # no Markdown in an alternative text
        image = f'<img src="{source}" alt="{escape(words)}" style="{style}">'
        return render("figure", figure=self, svg=safe(image))
