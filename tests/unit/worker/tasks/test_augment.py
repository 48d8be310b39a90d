"""Random changes of images: a sample's own, bit for bit, in whatever batch it comes; decided by its key; within bounds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from paceline.worker.tasks.augment import DEGREES, JITTER, SHIFT, Augment, draws, stream
from paceline.worker.tasks.cifar import CifarCNN, cifar

MEAN, DEVIATION = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)


def images(num: int, dtype: torch.dtype = torch.float32) -> Tensor:
    light = torch.rand((num, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    return ((light - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)).to(dtype)


def keys(num: int) -> Tensor:
    return torch.randint(2**63 - 1, (num,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_sample_is_the_same_alone_in_a_batch_and_in_another_order(dtype: torch.dtype) -> None:
    x, seeds, augment = images(70, dtype), keys(70), Augment(MEAN, DEVIATION)
    (together,) = augment((x,), seeds)
    assert together.dtype == dtype
    for num in (1, 2, 3, 7, 8, 17, 33, 64, 70):
        ids = torch.randperm(70, generator=torch.Generator().manual_seed(num))[:num]
        (found,) = augment((x[ids],), seeds[ids])
        assert torch.equal(found, together[ids]), num


def test_the_number_of_threads_changes_nothing() -> None:
    x, seeds, augment = images(64), keys(64), Augment(MEAN, DEVIATION)
    before = torch.get_num_threads()
    found: list[Tensor] = []
    try:
        for num in (1, 2):
            torch.set_num_threads(num)
            found.append(augment((x,), seeds)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_the_key_decides_and_nothing_is_drawn() -> None:
    x, augment = images(1).expand(200, -1, -1, -1), Augment(MEAN, DEVIATION)
    state = torch.get_rng_state()
    (found,) = augment((x,), keys(200))
    (again,) = augment((x,), keys(200))
    assert torch.equal(found, again)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(found.flatten(1).unique(dim=0)) == 200
    assert torch.equal(x[0], images(1)[0])  # the data itself stays as it is


def test_labels_pass_through() -> None:
    y = torch.arange(5)
    assert Augment(MEAN, DEVIATION)((images(5), y), keys(5))[1] is y


def test_draws_are_splitmix64() -> None:
    """Its published first outputs for seed 1234567."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    wanted = [(value % 2**24) / 2**24 for value in published]
    assert draws(torch.tensor([1234567]), stream(3, torch.device("cpu")))[0].tolist() == wanted


def test_draws_are_uniform_and_independent() -> None:
    found = draws(torch.arange(20_000), stream(7, torch.device("cpu")))
    assert found.min() >= 0 and found.max() < 1
    assert found.mean(0).tolist() == pytest.approx([0.5] * 7, abs=0.01)
    assert found.var(0).tolist() == pytest.approx([1 / 12] * 7, abs=0.002)
    assert (torch.corrcoef(found.T) - torch.eye(7)).abs().max() < 0.03


def test_pixels_stay_between_black_and_white() -> None:
    (found,) = Augment(MEAN, DEVIATION)((images(200),), keys(200))
    for channel, (mean, deviation) in enumerate(zip(MEAN, DEVIATION, strict=True)):
        light = found[:, channel] * deviation + mean
        assert light.min() >= -1e-6 and light.max() <= 1 + 1e-6


def test_places_stay_within_the_stated_shift_and_turn() -> None:
    """Two dots on black: where their middle goes is the shift, how far they turn is the angle."""
    x = torch.zeros(3_000, 3, 32, 32)
    x[:, :, 10, 16], x[:, :, 22, 16] = 1.0, 1.0  # above and below the middle
    (found,) = Augment((0.0,) * 3, (1.0,) * 3)((x,), keys(3_000))  # the mean is black, and so is the border
    bright = found[:, 0]
    rows, columns = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")

    def centre(part: Tensor, where: Tensor) -> Tensor:
        return (part * where).sum(dim=(1, 2)) / part.sum(dim=(1, 2))

    across, down = centre(bright, columns), centre(bright, rows)
    # The shift is turned with the image, and the dots' middle is half a pixel off the image's.
    for place in (across, down):
        assert SHIFT - 0.5 < (place - 15.5).abs().max() < SHIFT + 1.5

    upper = bright * (rows < down[:, None, None])
    lower = bright * (rows > down[:, None, None])
    lean = (centre(lower, columns) - centre(upper, columns)) / (centre(lower, rows) - centre(upper, rows))
    angle = torch.rad2deg(torch.atan(lean)).abs()
    assert DEGREES - 1 < angle.max() < DEGREES + 1


def test_half_of_them_are_flipped() -> None:
    x = torch.zeros(2_000, 3, 32, 32)
    x[..., :12] = 1.0  # bright on the left
    (found,) = Augment((0.5,) * 3, (0.25,) * 3)((x,), keys(2_000))
    left = found[:, 0, :, 8].mean(dim=1) > found[:, 0, :, 23].mean(dim=1)
    assert left.float().mean().item() == pytest.approx(0.5, abs=0.04)


def test_colours_change_as_much_as_stated() -> None:
    """The middle of an evenly coloured image, where no border comes in: contrast about the mean leaves the mean alone."""
    x = torch.zeros(2_000, 3, 32, 32)
    (found,) = Augment((0.5,) * 3, (0.25,) * 3)((x,), keys(2_000))
    light = found[:, :, 16, 16] * 0.25 + 0.5
    assert torch.allclose(light[:, 0], light[:, 2], atol=1e-6)  # grey stays grey
    assert light.min().item() == pytest.approx(0.5 * (1 - JITTER), abs=0.01)
    assert light.max().item() == pytest.approx(0.5 * (1 + JITTER), abs=0.01)


def test_the_task_has_it_unless_told_not_to() -> None:
    assert CifarCNN(augmented=False).augment is None
    augment = CifarCNN().augment
    assert augment is not None
    x, y = cifar(None, "test")
    found, labels = augment((x[:4], y[:4]), keys(4))
    assert found.shape == (4, 3, 32, 32) and not torch.equal(found, x[:4])
    assert labels.tolist() == y[:4].tolist()
