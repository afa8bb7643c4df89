"""Two processes that train together agree on codebooks, usage and scale after every step."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from ghrq import ResidualQuantizer
from ghrq.optim import RiemannianAdam


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def train(rank: int, port: int, settings: dict, revived_somewhere: torch.Tensor) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(rank)  # another start, other data and other random numbers on each
    sizes = settings.pop("codebook_size", 32)
    rq = ResidualQuantizer(8, sizes, 3, decay=0.8, revive_below=0.3, **settings)
    rq.initialize(torch.randn(500, 8))
    model = DistributedDataParallel(rq) if any(p.requires_grad for p in rq.parameters()) else rq
    parameters = [p for p in rq.parameters() if p.requires_grad]
    optimizer = RiemannianAdam(parameters, lr=0.01) if parameters else None
    for _ in range(8):
        z = torch.randn(64, 8) * (1 + rank)
        output = model(z)
        if optimizer is not None:
            optimizer.zero_grad()
            (output.loss + output.z_hat.square().mean()).backward()
            optimizer.step()
        revived_somewhere += int(rq.revived.any())
        for name, tensor in rq.state_dict().items():
            both = [torch.empty_like(tensor) for _ in range(2)]
            dist.all_gather(both, tensor)
            assert torch.equal(*both), f"{name} differs"
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # Python's own way out aborts now and then on a thread that gloo has left behind


@pytest.mark.slow
@pytest.mark.usefixtures("forkserver")
@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "ghrq"},
        {"kind": "naive"},
        {"kind": "ghrq", "codebook_update": "ema"},
        {"kind": "calibrated", "codebook_dim": 4, "depth_dropout": True, "centre": True},
        {"kind": "calibrated", "curvature": "learn", "codebook_dim": 4, "depth_dropout": True},
        {"kind": "ghrq", "codebook_update": "ema", "codebook_size": [8, 64, 32]},
    ],
    ids=str,
)
def test_all_ranks_agree(settings):
    revived = torch.zeros((), dtype=torch.int64).share_memory_()
    mp.start_processes(train, args=(free_port(), settings, revived), nprocs=2, start_method="forkserver")
    assert int(revived) > 0  # the test would prove little if no code had been revived on the way
