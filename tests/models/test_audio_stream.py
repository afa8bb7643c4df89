"""Streams give what the whole gives: for any pieces and blocks, from any state, at the delay they state."""

import pytest
import torch

from ghrq.models.audio_stream import DecodeStream, EncodeStream
from small_codec import small_codec, speech_like


@pytest.fixture(scope="module", params=[False, True], ids=["both sides", "causal"])
def codec(request):
    return small_codec(causal=request.param)


def pieces(x, size):
    return [x[:, start : start + size] for start in range(0, x.shape[1], size)]


@pytest.mark.parametrize(("size", "block"), [(1, 1), (37, 3), (4000, 20), (10**6, 7), (40, 1)])
@pytest.mark.parametrize("samples", [0, 1, 41, 1203])
def test_encoding_in_pieces(codec, size, block, samples):
    if size == 1 and samples > 100:
        pytest.skip("slow")
    wave = torch.stack((speech_like(samples + 1, 1), speech_like(samples + 1, 2)))[:, :samples]
    stream = EncodeStream(codec, 2, block=block)
    parts = [stream.push(piece) for piece in pieces(wave, size)]
    found = torch.cat([*parts, stream.finish()], dim=1)
    assert torch.equal(found, codec.encode(wave))
    again = torch.cat([stream.push(wave), stream.finish()], dim=1)  # as new
    assert torch.equal(again, found)


@pytest.mark.parametrize(("size", "block"), [(1, 1), (3, 2), (50, 8), (10**6, 30)])
@pytest.mark.parametrize("frames", [0, 1, 2, 101])
def test_decoding_in_pieces(codec, size, block, frames):
    codes = torch.randint(64, (2, frames, 3))
    stream = DecodeStream(codec, 2, depth=3, block=block)
    parts = [stream.push(piece) for piece in pieces(codes, size)]
    found = torch.cat([*parts, stream.finish()], dim=1)
    whole = codec.decode(codes)
    assert found.shape == whole.shape
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=1e-5)


def test_more_context_than_stated_is_never_needed_and_less_is_not_enough(codec):
    wave = speech_like(4000).unsqueeze(0)
    left, right = codec.context
    whole = codec.latents(wave)
    hop, frame = codec.hop, 50
    seen = codec.latents(wave[:, (frame - left) * hop : (frame + right + 1) * hop])[:, left]
    torch.testing.assert_close(seen, whole[:, frame], atol=1e-5, rtol=1e-5)
    short = codec.latents(wave[:, (frame - 2) * hop : (frame + right + 1) * hop])[:, 2]
    assert not torch.allclose(short, whole[:, frame], atol=1e-5)


def test_the_delay_is_as_stated(codec):
    wave = speech_like(1200).unsqueeze(0)
    (encoder, decoder), seen = codec.stream(), 0
    codes = []
    for place in range(1200):
        found = encoder.push(wave[:, place : place + 1])
        seen += found.shape[1]
        codes.append(found)
        # Frame i begins at sample i · hop, and is there as soon as `latency` samples from its first on were given.
        assert seen == max(0, (place + 1 - encoder.latency) // codec.hop + 1)
    assert encoder.latency == (1 + codec.context.right) * codec.hop
    samples = sum(decoder.push(part).shape[1] for part in codes)
    assert samples == seen * codec.hop - decoder.latency


def test_a_stream_goes_on_from_a_state(codec):
    wave = speech_like(1603).unsqueeze(0)
    whole, found, state = codec.encode(wave), [], None
    for piece in pieces(wave, 211):
        stream = EncodeStream(codec, block=4, state=state)
        found.append(stream.push(piece))
        state = stream.state
        assert state.kept.shape[1] <= (codec.context.left + codec.context.right + 4 + 1) * codec.hop + 211
    found.append(EncodeStream(codec, block=4, state=state).finish())
    assert torch.equal(torch.cat(found, dim=1), whole)


def test_a_state_is_saved_and_loaded(codec, tmp_path):
    wave = speech_like(1603).unsqueeze(0)
    encoder, decoder = codec.stream(stages=2)
    codes = encoder.push(wave[:, :1000])
    heard = decoder.push(codes)
    torch.save((encoder.state, decoder.state), tmp_path / "states.pt")
    first, second = torch.load(tmp_path / "states.pt")
    encoder, decoder = EncodeStream(codec, stages=2, state=first), DecodeStream(codec, depth=2, state=second)
    rest = torch.cat((encoder.push(wave[:, 1000:]), encoder.finish()), dim=1)
    whole = codec.encode(wave, stages=2)
    assert torch.equal(torch.cat((codes, rest), dim=1), whole)
    heard = torch.cat((heard, decoder.push(rest), decoder.finish()), dim=1)
    torch.testing.assert_close(heard, codec.decode(whole))


def test_a_wrong_piece_is_refused_at_once_and_the_stream_goes_on(codec):
    wave = speech_like(1603).unsqueeze(0)
    encoder, decoder = codec.stream(stages=2)
    pcm = (wave * 32767).to(torch.int16)
    codes, heard = [], []
    for piece in pieces(wave, 500):
        for wrong in (pcm, pcm.float(), torch.full((1, 9), torch.nan), piece.numpy()):
            with pytest.raises(ValueError, match="expected"):
                encoder.push(wrong)
        for wrong in (torch.full((1, 1, 2), 64), torch.zeros(1, 1, 2)):
            with pytest.raises(ValueError, match="codes"):
                decoder.push(wrong)
        codes.append(encoder.push(piece))
        heard.append(decoder.push(codes[-1]))
    codes.append(encoder.finish())
    heard += [decoder.push(codes[-1]), decoder.finish()]
    whole = codec.encode(wave, stages=2)
    assert torch.equal(torch.cat(codes, dim=1), whole)
    torch.testing.assert_close(torch.cat(heard, dim=1), codec.decode(whole))


def test_a_state_of_another_stream_is_refused(codec):
    encoder, decoder = codec.stream(batch=2, stages=2)
    for make in (
        lambda: EncodeStream(codec, 2, state=decoder.state),
        lambda: EncodeStream(codec, 1, state=encoder.state),
        lambda: DecodeStream(codec, 2, depth=3, state=decoder.state),
        lambda: DecodeStream(codec, 2, depth=2, state=encoder.state),
    ):
        with pytest.raises(ValueError, match="state is that of another stream"):
            make()


def test_shapes_are_checked(codec):
    with pytest.raises(ValueError, match=r"shape \(2, n\), got \(100,\)"):
        EncodeStream(codec, 2).push(torch.zeros(100))
    with pytest.raises(ValueError, match=r"shape \(1, n, 4\), got \(2, 5, 4\)"):
        DecodeStream(codec).push(torch.zeros(2, 5, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="block"):
        EncodeStream(codec, block=0)


def test_settings_are_checked_before_the_first_piece(codec):
    most = codec.quantizer.num_stages
    for settings in ({"stages": 0}, {"stages": most + 1}, {"stages": -1}, {"batch": 0}):
        with pytest.raises(ValueError, match="must be"):
            codec.stream(**settings)
    with pytest.raises(ValueError, match="expected a piece of shape"):
        codec.stream(stages=most - 1).decoder.push(torch.zeros(1, 2, most, dtype=torch.int64))
