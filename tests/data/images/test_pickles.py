"""The unpickler: what it reads, and that it runs nothing."""

import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from ghrq.data.images import pickles
from ghrq.system.errors import UserError

PATH = Path("some.pkl")


def read(content):
    return pickles.read(io.BytesIO(content), PATH, len(content))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["u1", "<i8", ">i2", "<f4", "f8"])
def test_arrays_of_numbers_in_dicts_and_tuples(protocol, kind):
    values = np.arange(12, dtype=kind).reshape(3, 4)
    content = {"rows": values, "columns": np.asfortranarray(values), "both": (values[0], [1, 2]), "old": "text"}
    found = read(pickle.dumps(content, protocol))
    np.testing.assert_array_equal(found["rows"], values)
    np.testing.assert_array_equal(found["columns"], values)
    np.testing.assert_array_equal(found["both"][0], values[0])
    assert found["rows"].dtype == values.dtype.newbyteorder("=")
    assert found["both"][1] == [1, 2]
    assert found["old"] == "text"


def test_a_pickle_of_python_2():
    """Strings are bytes there; as Python 2.7 and NumPy 1 wrote it: a uint8 array of 2×3, and a label."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02K\x03\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T\x06\x00\x00\x00\x00\x7f\x80\xff\x01\x02tb"
    )
    found = read(b"\x80\x02}(U\x04data" + array + b"U\x05label]K\x07au.")
    np.testing.assert_array_equal(found["data"], np.array([[0, 127, 128], [255, 1, 2]], dtype=np.uint8))
    assert found["label"] == [7]


class _Runs:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("function", "argument"),
    [(os.system, "touch ran"), (eval, "open('ran', 'w')"), (os.mkdir, "ran"), (np.load, "ran"), (getattr, "ran")],
)
def test_nothing_is_run(function, argument, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError, match=r"some\.pkl cannot be read.*it asks for \w+(\.\w+)*\.\w+, which is not an array"
    ):
        read(pickle.dumps({"data": _Runs(function, argument)}, protocol))
    assert not Path("ran").exists()


def test_arrays_of_other_things_are_refused():
    with pytest.raises(UserError, match="array of type 'O8'"):
        read(pickle.dumps(np.array([{}, []], dtype=object), 2))
    with pytest.raises(UserError, match="array of type 'V"):
        read(pickle.dumps(np.zeros(2, dtype=[("a", "i4")]), 2))
    with pytest.raises(UserError, match="encoding 'zip'"):
        read(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R.")


@pytest.mark.parametrize("size", [0, 1, 40, 100, 200])
def test_a_pickle_cut_off_is_one_line(size):
    whole = pickle.dumps({"data": np.arange(100)}, 2)
    with pytest.raises(UserError, match=r"some\.pkl cannot be read as a pickle of arrays") as caught:
        read(whole[:size])
    assert "\n" not in str(caught.value)


def test_an_array_with_too_few_bytes():
    whole = pickle.dumps(np.arange(4, dtype="u1"), 3)
    with pytest.raises(UserError, match="size does not match"):
        read(whole.replace(b"C\x04\x00\x01\x02\x03", b"C\x03\x00\x01\x02"))
