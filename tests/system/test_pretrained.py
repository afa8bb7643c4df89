"""Models as folders and on the Hub: what is not there is told in one line."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import nn

from ghrq import ResidualQuantizer
from ghrq.system import pretrained
from ghrq.system.errors import UserError
from ghrq.system.pretrained import Format, Pretrained
from ghrq.system.settings import Section


class Config(Section):
    width: int = 2


class Model(nn.Linear, Pretrained):
    Config = Config
    _format = Format("test-model", "image model")

    def __init__(self, config: Config) -> None:
        super().__init__(config.width, 1)
        self.config = config


class NotFound(BaseHTTPRequestHandler):
    """A Hub without any repository."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def empty_hub() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), NotFound) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def hub_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)


def test_a_hub_that_is_not_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_at("http://127.0.0.1:1", monkeypatch)  # nobody listens there
    with pytest.raises(UserError, match=r"^me/x is not a folder here, and cannot be fetched .*ConnectError") as told:
        Model.from_pretrained("me/x", cache_dir=tmp_path)
    assert "RepositoryNotFound" not in str(told.value)
    with pytest.raises(UserError, match=r"^cannot upload the image model to the Hub as me/x \(ConnectError"):
        Model(Config()).push_to_hub("me/x", token="hf_none")


def test_a_hub_without_the_repository(empty_hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_at(empty_hub, monkeypatch)
    with pytest.raises(UserError, match=r"^me/x is not a folder .*RepositoryNotFoundError: 404"):
        Model.from_pretrained("me/x", cache_dir=tmp_path)


@pytest.mark.parametrize("name", ["nothere/models/tokenizer", "/not/here", "./x", "../x", "~/x"])
def test_a_path_is_not_asked_of_the_hub(name: str) -> None:
    with pytest.raises(UserError, match=r"^there is no folder /.*: name that of the image model$"):
        Model.from_pretrained(name)


def test_in_the_folder_of_a_run_the_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Model(Config()).save_pretrained("runs/d/models/tokenizer")
    Path("runs/d/models/broken/config.json").mkdir(parents=True)
    for name in ("runs/d", "runs/d/models"):
        with pytest.raises(UserError, match=r"image models are folders .* did you mean runs/d/models/tokenizer\?$"):
            Model.from_pretrained(name)
    Path("empty").mkdir()
    with pytest.raises(UserError, match=r"^there is no file empty/config.json: .* make the image model again$"):
        Model.from_pretrained("empty")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_folder_is_no_file_of_a_model(file: str, tmp_path: Path) -> None:
    Model(Config()).save_pretrained(tmp_path)
    (tmp_path / file).unlink()
    (tmp_path / file / "inside").mkdir(parents=True)
    with pytest.raises(UserError, match=rf"^there is no file .*{file}"):
        Model.from_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"holds other files, such as {file}"):
        Model(Config()).save_pretrained(tmp_path)


def test_the_model_of_the_docstring_is_saved_and_loaded(tmp_path: Path) -> None:
    names: dict[str, Any] = {"nn": nn, "MyConfig": Config, "Format": Format, "Pretrained": Pretrained}
    exec(dedent((Pretrained.__doc__ or "").partition("::\n")[2]), names)
    model = names["MyModel"](Config(width=3))
    model.save_pretrained(tmp_path / "own")
    found = names["MyModel"].from_pretrained(tmp_path / "own")
    assert found.config.width == 3
    assert torch.equal(found.layer.weight, model.layer.weight)


def test_a_model_replaces_one_of_its_class_only(tmp_path: Path) -> None:
    quantizer = ResidualQuantizer(4, codebook_size=8)
    quantizer.save_pretrained(tmp_path / "rq")
    quantizer.save_pretrained(tmp_path / "rq")
    with pytest.raises(UserError, match=r"rq holds config.json already: .* with force=True"):
        Model(Config()).save_pretrained(tmp_path / "rq")
    assert torch.equal(ResidualQuantizer.from_pretrained(tmp_path / "rq").codebooks, quantizer.codebooks)
    Model(Config()).save_pretrained(tmp_path / "rq", force=True)
    Model.from_pretrained(tmp_path / "rq")


def test_numbers_that_mean_nothing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, match in ((torch.nan, "NaN or infinite"), (-torch.inf, "NaN or infinite"), (2.0, "outside of the Poi")):
        quantizer = ResidualQuantizer(4, codebook_size=8)
        quantizer.codebooks.data[1, 2, 3] = value
        with monkeypatch.context() as patch:
            patch.setattr(pretrained, "_check_finite", lambda *_: None)
            quantizer.save_pretrained(tmp_path / "rq")
        with pytest.raises(UserError, match=rf"^'codebooks' in .*rq/model\.safetensors has .*{match}"):
            ResidualQuantizer.from_pretrained(tmp_path / "rq")
