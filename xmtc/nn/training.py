"""The one training loop of all networks: Adam, clipped gradients, averaged weights, the best of them kept."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from math import cos, inf, pi
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from xmtc.core.dataset import Dataset
from xmtc.core.events import Pass, measure_peak_memory
from xmtc.core.method import Method
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.data.splits import VALIDATION_SHARE, sample_labelled_rows, train_valid_split
from xmtc.errors import XmtcError
from xmtc.evaluation import evaluate
from xmtc.nn import distributed
from xmtc.nn.devices import choose_thread_count, get_network_device, select_device, use_torch_settings
from xmtc.nn.network import Loader

RECENT_NORMS, MAX_NORM_RATIO, MAX_RECORDED_RATIO = (
    5,
    5.0,
    2.0,
)  # gradients are clipped at 5 times the largest of the last 5 norms
CHECKPOINT_SECONDS = 600.0  # between checkpoints
MAX_WEIGHT = 1e6  # weight; what is larger, or no number, has come of a training that diverged


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How long to train and how fast."""

    epochs: int
    rate: float
    average_from: int  # the epoch from which on weights are averaged
    average_every: int  # steps
    patience: int  # looks without a better score before training ends, at the end of an epoch
    seed: int
    max_seconds: float = inf  # after which no further epoch begins
    decay: float = 1.0  # what the rate is multiplied by after every epoch
    weight_decay: float = 0.0
    clips: bool = True  # gradients, relative to recent ones
    look_every: int = 0  # steps between looks at the score; 0: one look after every epoch
    average_over: float = inf  # weights in the average, after which older ones fade from it; inf: all, as in SWA
    rates_by_prefix: tuple[tuple[str, float], ...] = ()  # of parameters whose names begin so, in place of `rate`
    max_gradient_norm: float = inf  # the norm that gradients are scaled down to
    n_steps: int = 0  # of a training whose rates rise linearly, then fall to 0 at its end; 0: they do neither
    warmup_steps: int = 0  # of these, steps in which they rise
    has_cosine_decay: bool = False  # they fall along half a cosine, slowly at first and at last, in place of a line

    def rate_factor(self, step: int) -> float:
        """The share of the rate that a step has: slanted triangular learning rates, eq. 15 of APLC-XLNet. The first
        step is t = 0, as the authors' is: it has no rate where rates rise, and the whole where they only fall."""
        if not self.n_steps:
            return 1.0
        if step < self.warmup_steps:
            return step / self.warmup_steps
        left = max(0.0, (self.n_steps - step) / (self.n_steps - self.warmup_steps))
        return (1 - cos(pi * left)) / 2 if self.has_cosine_decay else left

    def get_rate(self, parameter: str) -> float:
        return next((rate for beginning, rate in self.rates_by_prefix if parameter.startswith(beginning)), self.rate)


EpochBatches = Callable[[np.random.Generator], Iterator[np.ndarray]]  # an epoch's batches of document numbers


def run_training_loop(
    network: nn.Module,
    batches: EpochBatches,
    loss: Callable[[np.ndarray], Tensor | Iterator[Tensor]],
    score: Callable[[], float],
    plan: TrainingOptions,
    n_docs: int,
    run: Run = Run(),
    name: str = "network",
    metric: str = "",
) -> None:
    """Train on the loss of batches until the score of the validation documents, looked at after every epoch or every so
    many steps, has not grown for a while. The network ends with the best weights that were looked at, also where later
    ones diverge. Of several processes, each takes the loss of its share of a batch. A loss may come in parts, one after
    the other, of which the next is computed when the last has given its gradients. After every epoch, or pass, those
    who watch are told of it, the score by the name of its metric, and may ask to stop; a resumed training first tells
    of the passes that it has behind it."""
    state = TrainingState(network, plan)
    state.resume(run, name)
    begin = time.monotonic() - state.seconds
    with run.stage("training", plan.epochs * n_docs) as progress:
        stop = sum(run.notify(done) for done in state.passes) > 0
        progress.advance(state.epoch * n_docs)
        while distributed.broadcast_from_main(state.should_continue and not stop):
            network.train()
            for number, docs in enumerate(batches(np.random.default_rng((plan.seed, state.epoch)))):
                if number >= state.n_epoch_steps:  # a resumed training may have done some
                    state.set_seed()
                    state.step(loss(docs))
                    if state.is_validation_due and not state.has_diverged:
                        state.validate(lambda: distributed.broadcast_from_main(score()))
                    state.save_checkpoint_if_due(run, name, time.monotonic() - begin)
                progress.advance(len(docs))
            if state.has_diverged:
                break
            mean_loss, rate = (
                distributed.average_over_processes(state.total_loss) / max(1, state.n_epoch_steps),
                state.rate,
            )
            state.finish_epoch(lambda: distributed.broadcast_from_main(score()))
            state.seconds = time.monotonic() - begin
            state.record_pass(run.qualify_name(name), mean_loss, rate, metric)
            stop = run.notify(state.passes[-1])
            progress.set_status(state.summary)
    state.save_checkpoint(run, name)
    state.restore_best()


class TrainingState:
    """Where a training stands: the network, the optimisers' memory, the averaged weights and the best so far."""

    def __init__(self, network: nn.Module, plan: TrainingOptions):
        self.network, self.plan = network, plan
        self.parameters: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
        # these and what batch normalisation has seen, which is averaged and kept like them
        self.tensors: list[Tensor] = [*self.parameters, *network.buffers()]
        self.optimisers = make_optimisers(network, plan)
        self.recent_norms = torch.full((RECENT_NORMS,), 1.0, device=self.parameters[0].device)
        self.average_tensors: list[Tensor] = []
        self.n_averaged, self.n_steps, self.epoch, self.n_epoch_steps, self.seconds = 0, 0, 0, 0, 0.0
        self.last_checkpoint = time.monotonic()
        self.best_tensors = [p.detach().clone() for p in self.tensors]
        self.scores: list[float] = []
        self.passes: list[Pass] = []
        exact = torch.float32 if self.recent_norms.device.type == "mps" else torch.float64  # which has no other
        # of the steps of this pass, added up where it is computed: nobody waits for a GPU to read it
        self.total_loss = torch.zeros((), dtype=exact, device=self.recent_norms.device)

    @property
    def n_since_best(self) -> int:
        """Looks since the best score; of equal ones the last counts, which has learnt more."""
        return int(np.argmax(self.scores[::-1])) if self.scores else 0

    @property
    def has_diverged(self) -> bool:
        """Whether a weight is no number any more, or none of use. Refused where no pass before was better."""
        weights = torch.stack([weight.detach().abs().max() for weight in self.parameters])
        seen = [buffer.isfinite().all() for buffer in self.network.buffers()]  # by batch normalisation, of any size
        if distributed.broadcast_from_main(bool((weights < MAX_WEIGHT).all()) and all(seen)):
            return False
        if not self.scores:
            raise XmtcError(
                "The training diverged in its first pass: weights are no longer numbers; try a lower learning rate or "
                "smaller weights of the losses, and see whether features are very large."
            )
        return True

    @property
    def should_continue(self) -> bool:
        has_time = self.seconds < self.plan.max_seconds
        return has_time and self.epoch < self.plan.epochs and self.n_since_best < self.plan.patience

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return self.plan.rate * self.plan.decay**self.epoch * self.plan.rate_factor(self.n_steps - 1)

    def record_pass(self, network: str, loss: float, rate: float, metric: str) -> None:
        """Write down the pass that has just ended."""
        device = self.recent_norms.device
        done = Pass(
            network=network,
            number=self.epoch,
            loss=loss,
            rate=rate,
            seconds=self.seconds - sum(before.seconds for before in self.passes),
            metrics={metric: self.scores[-1]} if metric else {},
            memory=measure_peak_memory(),
            gpu_memory=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        )
        self.passes.append(done)

    @property
    def summary(self) -> str:
        """The last pass in a phrase."""
        done = self.passes[-1]
        scores = [f"{name} {score:.4f}, best {max(self.scores):.4f}" for name, score in done.metrics.items()]
        return ", ".join([f"pass {done.number}: loss {done.loss:.4g}", *scores])

    def set_rate(self) -> None:
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["rate"] * self.plan.decay**self.epoch * self.plan.rate_factor(self.n_steps)

    def set_seed(self) -> None:
        """So that a training resumed here drops out the same, and every process something else."""
        rank, world_size = distributed.rank_and_size()
        seeds = self.plan.seed, self.epoch, self.n_epoch_steps, rank, world_size
        torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))

    def step(self, loss: Tensor | Iterator[Tensor]) -> None:
        self.set_rate()
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        for part in [loss] if isinstance(loss, Tensor) else loss:
            part.backward()
            self.total_loss += part.detach().sum()
        if self.plan.max_gradient_norm < inf:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.plan.max_gradient_norm)
        elif self.plan.clips:
            self.recent_norms = clip_gradients(self.parameters, self.recent_norms)
        for optimiser in self.optimisers:
            optimiser.step()
        self.n_steps += 1
        self.n_epoch_steps += 1
        if self.epoch >= self.plan.average_from and self.n_steps % self.plan.average_every == 0:
            self.add_to_average()

    @torch.no_grad()
    def add_to_average(self) -> None:
        self.n_averaged += 1
        share = 1 / min(self.n_averaged, self.plan.average_over)
        if self.n_averaged == 1:
            self.average_tensors = [p.detach().clone() for p in self.tensors]
        else:
            torch._foreach_lerp_(self.average_tensors, [p.detach() for p in self.tensors], share)

    @property
    def is_validation_due(self) -> bool:
        return self.plan.look_every > 0 and self.n_steps % self.plan.look_every == 0

    @torch.no_grad()
    def validate(self, score: Callable[[], float]) -> None:
        """Score the averaged weights, or the present ones before there are any, and keep the best."""
        present = [p.detach().clone() for p in self.tensors] if self.average_tensors else []
        if self.average_tensors:
            torch._foreach_copy_(self.tensors, self.average_tensors)
        self.network.eval()
        self.scores.append(score())
        if self.n_since_best == 0:
            torch._foreach_copy_(self.best_tensors, [p.detach() for p in self.tensors])
        if present:
            torch._foreach_copy_(self.tensors, present)
        self.network.train()

    def finish_epoch(self, score: Callable[[], float]) -> None:
        if not self.plan.look_every or not self.scores:  # there may be fewer steps than between two looks
            self.validate(score)
        self.epoch, self.n_epoch_steps = self.epoch + 1, 0
        self.total_loss.zero_()

    @torch.no_grad()
    def restore_best(self) -> None:
        torch._foreach_copy_(self.tensors, self.best_tensors)
        self.network.eval()

    def _checkpoint_tensors(self) -> dict[str, Tensor]:
        """All that a resumed training needs, under flat names."""
        found = {f"now-{i}": p.detach() for i, p in enumerate(self.tensors)}
        found |= {f"best-{i}": p for i, p in enumerate(self.best_tensors)}
        found |= {f"average-{i}": p for i, p in enumerate(self.average_tensors)}
        for number, optimiser in enumerate(self.optimisers):
            for i, memory in optimiser.state_dict()["state"].items():
                found |= {f"adam-{number}-{i}-{name}": torch.as_tensor(value) for name, value in memory.items()}
        return found | {"recent": self.recent_norms, "total_loss": self.total_loss}

    def save_checkpoint_if_due(self, run: Run, name: str, seconds: float) -> None:
        if run.checkpoint.folder is not None and time.monotonic() - self.last_checkpoint > CHECKPOINT_SECONDS:
            self.seconds = seconds
            self.save_checkpoint(run, name)
            self.last_checkpoint = time.monotonic()

    def save_checkpoint(self, run: Run, name: str) -> None:
        if run.checkpoint.folder is not None and distributed.rank_and_size()[0] == 0:
            arrays = {name: tensor.cpu().numpy() for name, tensor in self._checkpoint_tensors().items()}
            counts = np.array([self.epoch, self.n_epoch_steps, self.n_steps, self.n_averaged, self.seconds])
            passes = np.array(json.dumps([asdict(done) for done in self.passes]))
            known = {"counts": counts, "scores": np.array(self.scores), "passes": passes}
            run.checkpoint.save_piece(f"{name}-unfinished", arrays | known)

    @torch.no_grad()
    def resume(self, run: Run, name: str) -> None:
        kept = run.checkpoint.load_piece(f"{name}-unfinished")
        if kept is None:
            return
        self.epoch, self.n_epoch_steps, self.n_steps, self.n_averaged = (int(n) for n in kept["counts"][:4])
        self.seconds = float(kept["counts"][4])
        self.scores = kept["scores"].tolist()
        self.passes = [Pass(**done) for done in json.loads(str(kept.get("passes", "[]")))]  # older pieces have none
        device = self.recent_norms.device

        def tensors(kind: str) -> list[Tensor]:
            n = sum(name.startswith(f"{kind}-") for name in kept)
            return [torch.from_numpy(kept[f"{kind}-{i}"]).to(device) for i in range(n)]

        torch._foreach_copy_(self.tensors, tensors("now"))
        self.best_tensors, self.average_tensors = tensors("best"), tensors("average")
        self.recent_norms = torch.from_numpy(kept["recent"]).to(device)
        self.total_loss = torch.from_numpy(kept.get("total_loss", np.zeros(()))).to(device)
        for number, optimiser in enumerate(self.optimisers):
            memory: dict[int, dict[str, Any]] = {}
            for name, array in kept.items():
                if name.startswith(f"adam-{number}-"):
                    _, _, i, key = name.split("-")
                    value = torch.from_numpy(array)
                    is_count = key == "step" and isinstance(optimiser, torch.optim.SparseAdam)
                    memory.setdefault(int(i), {})[key] = value.item() if is_count else value
            optimiser.load_state_dict({"state": memory, "param_groups": optimiser.state_dict()["param_groups"]})


def make_optimisers(network: nn.Module, plan: TrainingOptions) -> list[torch.optim.Optimizer]:
    """Adam; for rows of which a step sees only a few, the one that moves only these."""
    few = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding) and m.sparse}
    trained = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    dense = group_parameters([(name, p) for name, p in trained if id(p) not in few], plan)
    sparse = group_parameters([(name, p) for name, p in trained if id(p) in few], plan)
    fused = dense[0]["params"][0].device.type == "cuda"
    decay = plan.weight_decay
    found: list[torch.optim.Optimizer] = [torch.optim.AdamW(dense, plan.rate, weight_decay=decay, fused=fused)]
    return found + ([torch.optim.SparseAdam(sparse, plan.rate)] if sparse else [])


def group_parameters(parameters: list[tuple[str, Tensor]], plan: TrainingOptions) -> list[dict[str, Any]]:
    """Parameters that have the same rate together."""
    rates = dict.fromkeys(plan.get_rate(name) for name, _ in parameters)
    return [{"params": [p for name, p in parameters if plan.get_rate(name) == rate], "rate": rate} for rate in rates]


@torch.no_grad()
def clip_gradients(parameters: list[Tensor], recent: Tensor) -> Tensor:
    """Scale gradients down to 5 times the largest of the recent norms; the recent norms with the new one, of which no
    more is recorded than twice that largest, or 1, so that the limit is never above 5."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    values = [g._values() if g.is_sparse else g for g in gradients]  # of sparse ones, rows not yet added up
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(values)))
    largest = recent.max()
    torch._foreach_mul_(values, (MAX_NORM_RATIO * largest / (norm + 1e-12)).clamp(max=1.0))
    recorded = torch.minimum(norm, MAX_RECORDED_RATIO * largest).clamp(max=1.0)
    return torch.cat([recent[1:], recorded[None]])


HELD_OUT_HELP = (
    "share of the documents, at most 4,000, that decide when to stop, where no others are given; 0: learn from all, to "
    "the last pass, and, unless calibrate=false, a second time without some, to tell what scores mean"
)
STOPPING_METRIC = "nDCG@5"  # of held-out documents, by which the best pass is known


def prepare_training(
    method: Method,
    data: Dataset,
    valid: Dataset | None,
    run: Run,
    *,
    seed: int,
    share: float = VALIDATION_SHARE,
    vectors: np.ndarray | None = None,
) -> tuple[Dataset, Dataset | None, torch.device]:
    """Hold documents out, unless there are others to stop by or none are wanted (share=0); meet the other processes;
    claim the checkpoint for this training, whose word vectors may have come from a file that has changed since."""
    if valid is not None or share:
        data, valid = train_valid_split(data, valid, seed, share)
    device = select_device(run)
    distributed.join_process_group(device)
    if run.checkpoint.folder:
        with distributed.main_process_first():
            held_out = valid.fingerprint() if valid else ""
            run.checkpoint.claim(f"{method} {data.fingerprint()} {held_out} {fingerprint_array(vectors)}")
    return data, valid, device


def select_stopping_rows(data: Dataset, seed: int, share: float) -> np.ndarray | None:
    """The documents that `begin` holds out where no others are given, if any."""
    return sample_labelled_rows(data, seed, share) if share else None


def fingerprint_array(vectors: np.ndarray | None) -> str:
    """The same for the same numbers alone."""
    if vectors is None:
        return ""
    return f"{vectors.shape} {hashlib.blake2b(np.ascontiguousarray(vectors).data, digest_size=16).hexdigest()}"


def fit_network(
    network: nn.Module,
    *,
    loader: Loader,
    loss: Callable[[np.ndarray], Tensor | Iterator[Tensor]],
    predict: Callable[[Run], Predictions],
    Y: csr_array | None,
    plan: TrainingOptions,
    batch: int,
    run: Run,
    name: str = "network",
) -> None:
    """Train a network in batches of the loader's documents. `loss` is that of document numbers; `answer` predicts the
    labels of the held-out documents, whose true ones are Y. Without any, the last pass is the best."""

    def batches(rng: np.random.Generator) -> Iterator[np.ndarray]:
        return loader.shuffled_batches(batch, rng)

    def score() -> float:
        if Y is None:
            return 0.0  # of equal scores the last stays
        return evaluate(predict(run.without_output()), Y, [STOPPING_METRIC])[STOPPING_METRIC]

    if Y is None:
        plan = replace(plan, look_every=0)  # the weights after the last step stay, not those of the last look
    threads = choose_thread_count(run, network, batch)
    with use_torch_settings(run, get_network_device(network), plan.seed, threads):
        run_training_loop(
            network, batches, loss, score, plan, loader.n_docs, run, name, "" if Y is None else STOPPING_METRIC
        )
