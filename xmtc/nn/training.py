"""Training loop of all networks: Adam, gradient clipping, weight averaging, early stopping, checkpoints."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import cos, inf, pi
from typing import Any, NamedTuple

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
from xmtc.nn.batches import LabelLoader
from xmtc.nn.devices import (
    choose_thread_count,
    get_network_device,
    mixed_precision,
    select_device,
    use_torch_settings,
)
from xmtc.nn.network import Design, LabelNetwork, Loader, predict_with_network

RECENT_NORMS = 5  # gradient norms that are remembered for clipping
MAX_NORM_RATIO = 5.0  # gradients are clipped at this multiple of the largest recent norm
MAX_RECORDED_RATIO = 2.0  # a norm is recorded as at most this multiple of the largest recent norm
MAX_WEIGHT = 1e6  # a larger or non-finite weight means that the training diverged
STOPPING_METRIC = "nDCG@5"  # on the validation documents
STOPPING_K = 5  # labels that the metric needs
HELD_OUT_HELP = (
    "Share of the documents (at most 4,000) held out for early stopping if no validation set is given; 0 trains on all "
    "documents until the last epoch and, unless calibrate=false, a second time for calibration."
)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of the training loop."""

    epochs: int
    rate: float
    average_from: int  # epoch from which weights are averaged
    average_every: int  # steps between two averaged weights
    patience: int  # validations without a better score before training stops at the end of an epoch
    seed: int
    max_seconds: float = inf  # no further epoch begins after this time
    decay: float = 1.0  # factor of the learning rate after every epoch
    weight_decay: float = 0.0
    clips: bool = True  # clip gradients relative to recent norms
    look_every: int = 0  # steps between two validations; 0 validates after every epoch
    average_over: float = inf  # window of the moving average of weights; inf averages all equally (SWA)
    rates_by_prefix: tuple[tuple[str, float], ...] = ()  # learning rates by prefix of the parameter name
    max_gradient_norm: float = inf  # clip gradients at this norm
    n_steps: int = 0  # t_a: steps of a schedule that rises linearly, then falls to 0; 0 uses constant rates
    warmup_steps: int = 0  # t_w: steps in which the rates rise
    has_cosine_decay: bool = False  # rates fall along half a cosine instead of linearly

    def rate_factor(self, step: int) -> float:
        """Return the factor of the learning rate at step t: slanted triangular rates, eq. 15 of APLC-XLNet.

        The first step is t = 0 as in the authors' code: its factor is 0 with warm-up and 1 without.
        """
        if not self.n_steps:
            return 1.0
        if step < self.warmup_steps:
            return step / self.warmup_steps
        remaining = max(0.0, (self.n_steps - step) / (self.n_steps - self.warmup_steps))
        return (1 - cos(pi * remaining)) / 2 if self.has_cosine_decay else remaining

    def get_rate(self, parameter: str) -> float:
        return next((rate for prefix, rate in self.rates_by_prefix if parameter.startswith(prefix)), self.rate)


EpochBatches = Callable[[np.random.Generator], Iterator[np.ndarray]]  # yields document numbers, batch by batch


def run_training_loop(
    network: nn.Module,
    batches: EpochBatches,
    loss: Callable[[np.ndarray], Tensor | Iterator[Tensor]],
    score: Callable[[], float],
    options: TrainingOptions,
    n_docs: int,
    run: Run = Run(),
    name: str = "network",
    metric: str = "",
) -> None:
    """Train until the last epoch or until the validation score stops improving; keep the best weights.

    Parameters
    ----------
    network : nn.Module
        Network whose parameters are trained in place.
    batches : callable
        Returns the batches of an epoch, as document numbers, for a random generator.
    loss : callable
        Returns the loss of a batch, or an iterator of its parts; the gradients of a part are computed before the next
        part, which saves memory. With several processes, each returns the loss of its share.
    score : callable
        Returns the validation score of the current weights.
    options : TrainingOptions
    n_docs : int
        Number of training documents, for the progress bar.
    run : Run
        Its callbacks receive an event after every epoch and can stop the training. A resumed training first repeats the
        events of its finished epochs.
    name : str
        Name of the network in events and checkpoints.
    metric : str
        Name of the score in events; empty if there is none.
    """
    state = TrainingState(network, options)
    state.resume(run, name)
    begin = time.monotonic() - state.seconds

    def compute_score() -> float:
        return distributed.broadcast_from_main(score())

    with run.stage("training", options.epochs * n_docs) as progress:
        is_stopped = False
        for finished in state.passes:
            is_stopped |= run.notify(finished)
        progress.advance(state.epoch * n_docs)
        while distributed.broadcast_from_main(state.should_continue and not is_stopped):
            network.train()
            for number, docs in enumerate(batches(np.random.default_rng((options.seed, state.epoch)))):
                if number >= state.n_epoch_steps:  # a resumed training skips the steps that it has done
                    state.set_seed()
                    state.step(loss(docs))
                    if state.is_validation_due and not state.check_divergence():
                        state.validate(compute_score)
                    state.save_checkpoint_if_due(run, name, time.monotonic() - begin)
                progress.advance(len(docs))
            if state.check_divergence():
                break
            mean_loss = distributed.average_over_processes(state.total_loss) / max(1, state.n_epoch_steps)
            rate = state.rate
            state.finish_epoch(compute_score)
            state.seconds = time.monotonic() - begin
            state.record_pass(run.qualify_name(name), mean_loss, rate, metric)
            is_stopped = run.notify(state.passes[-1])
            progress.set_status(state.summary)
    state.save_checkpoint(run, name)
    state.restore_best()


class TrainingState:
    """State of a training: network, optimisers, averaged weights, best weights, counters and scores."""

    def __init__(self, network: nn.Module, options: TrainingOptions):
        self.network, self.options = network, options
        self.parameters: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
        # Parameters and the statistics of batch normalisation are averaged and kept alike.
        self.tensors: list[Tensor] = [*self.parameters, *network.buffers()]
        self.optimisers = make_optimisers(network, options)
        self.recent_norms = torch.full((RECENT_NORMS,), 1.0, device=self.parameters[0].device)
        self.average_tensors: list[Tensor] = []
        self.n_averaged, self.n_steps, self.epoch, self.n_epoch_steps, self.seconds = 0, 0, 0, 0, 0.0
        self.last_checkpoint = time.monotonic()
        self.best_tensors = [p.detach().clone() for p in self.tensors]
        self.scores: list[float] = []
        self.passes: list[Pass] = []
        device = self.recent_norms.device
        dtype = torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
        # Loss of this epoch, summed on the device: reading it after every step would wait for the GPU.
        self.total_loss = torch.zeros((), dtype=dtype, device=device)

    @property
    def n_since_best(self) -> int:
        """Number of validations since the best score; the last of equal scores is the best."""
        return int(np.argmax(self.scores[::-1])) if self.scores else 0

    def check_divergence(self) -> bool:
        """Return True if the weights diverged; raise XmtcError if there is no earlier validation to return to."""
        weights = torch.stack([weight.detach().abs().max() for weight in self.parameters])
        is_finite = [buffer.isfinite().all() for buffer in self.network.buffers()]  # statistics may have any size
        if distributed.broadcast_from_main(bool((weights < MAX_WEIGHT).all()) and all(is_finite)):
            return False
        if not self.scores:
            raise XmtcError(
                "The training diverged in its first epoch: weights are too large or not finite; lower the learning "
                "rate or the weights of the losses, and check whether feature values are very large."
            )
        return True

    @property
    def should_continue(self) -> bool:
        has_time = self.seconds < self.options.max_seconds
        return has_time and self.epoch < self.options.epochs and self.n_since_best < self.options.patience

    @property
    def rate(self) -> float:
        """Learning rate of the last step."""
        return self.options.rate * self.options.decay**self.epoch * self.options.rate_factor(self.n_steps - 1)

    def record_pass(self, network: str, loss: float, rate: float, metric: str) -> None:
        """Append an event for the epoch that has just ended."""
        device = self.recent_norms.device
        finished = Pass(
            network=network,
            number=self.epoch,
            loss=loss,
            rate=rate,
            seconds=self.seconds - sum(earlier.seconds for earlier in self.passes),
            metrics={metric: self.scores[-1]} if metric else {},
            memory=measure_peak_memory(),
            gpu_memory=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        )
        self.passes.append(finished)

    @property
    def summary(self) -> str:
        """Status line of the last epoch."""
        last = self.passes[-1]
        scores = [f"{name} {score:.4f}, best {max(self.scores):.4f}" for name, score in last.metrics.items()]
        return ", ".join([f"epoch {last.number}: loss {last.loss:.4g}", *scores])

    def set_rate(self) -> None:
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["rate"] * self.options.decay**self.epoch * self.options.rate_factor(self.n_steps)

    def set_seed(self) -> None:
        """Seed dropout by the step, so that a resumed training repeats it, and by process."""
        rank, world_size = distributed.rank_and_size()
        seeds = self.options.seed, self.epoch, self.n_epoch_steps, rank, world_size
        torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))

    def step(self, loss: Tensor | Iterator[Tensor]) -> None:
        self.set_rate()
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        for part in [loss] if isinstance(loss, Tensor) else loss:
            part.backward()
            self.total_loss += part.detach().sum()
        if self.options.max_gradient_norm < inf:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.options.max_gradient_norm)
        elif self.options.clips:
            self.recent_norms = clip_gradients(self.parameters, self.recent_norms)
        for optimiser in self.optimisers:
            optimiser.step()
        self.n_steps += 1
        self.n_epoch_steps += 1
        if self.epoch >= self.options.average_from and self.n_steps % self.options.average_every == 0:
            self.add_to_average()

    @torch.no_grad()
    def add_to_average(self) -> None:
        self.n_averaged += 1
        share = 1 / min(self.n_averaged, self.options.average_over)
        if self.n_averaged == 1:
            self.average_tensors = [p.detach().clone() for p in self.tensors]
        else:
            torch._foreach_lerp_(self.average_tensors, [p.detach() for p in self.tensors], share)

    @property
    def is_validation_due(self) -> bool:
        return self.options.look_every > 0 and self.n_steps % self.options.look_every == 0

    @torch.no_grad()
    def validate(self, score: Callable[[], float]) -> None:
        """Score the averaged weights (the current ones before averaging begins) and keep the best."""
        current = [p.detach().clone() for p in self.tensors] if self.average_tensors else []
        if self.average_tensors:
            torch._foreach_copy_(self.tensors, self.average_tensors)
        self.network.eval()
        self.scores.append(score())
        if self.n_since_best == 0:
            torch._foreach_copy_(self.best_tensors, [p.detach() for p in self.tensors])
        if current:
            torch._foreach_copy_(self.tensors, current)
        self.network.train()

    def finish_epoch(self, score: Callable[[], float]) -> None:
        if not self.options.look_every or not self.scores:  # also if training has fewer steps than look_every
            self.validate(score)
        self.epoch, self.n_epoch_steps = self.epoch + 1, 0
        self.total_loss.zero_()

    @torch.no_grad()
    def restore_best(self) -> None:
        torch._foreach_copy_(self.tensors, self.best_tensors)
        self.network.eval()

    def _checkpoint_tensors(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed training needs, by name."""
        tensors = {f"now-{i}": p.detach() for i, p in enumerate(self.tensors)}
        tensors |= {f"best-{i}": p for i, p in enumerate(self.best_tensors)}
        tensors |= {f"average-{i}": p for i, p in enumerate(self.average_tensors)}
        for number, optimiser in enumerate(self.optimisers):
            for i, moments in optimiser.state_dict()["state"].items():
                tensors |= {f"adam-{number}-{i}-{name}": torch.as_tensor(value) for name, value in moments.items()}
        return tensors | {"recent": self.recent_norms, "total_loss": self.total_loss}

    def save_checkpoint_if_due(self, run: Run, name: str, seconds: float) -> None:
        is_due = time.monotonic() - self.last_checkpoint >= run.checkpoint.interval_seconds
        if is_due and run.checkpoint.folder is not None:
            self.seconds = seconds
            self.save_checkpoint(run, name)
            self.last_checkpoint = time.monotonic()

    def save_checkpoint(self, run: Run, name: str) -> None:
        if run.checkpoint.folder is not None and distributed.rank_and_size()[0] == 0:
            arrays = {name: tensor.cpu().numpy() for name, tensor in self._checkpoint_tensors().items()}
            counts = np.array([self.epoch, self.n_epoch_steps, self.n_steps, self.n_averaged, self.seconds])
            passes = np.array(json.dumps([asdict(finished) for finished in self.passes]))
            progress = {"counts": counts, "scores": np.array(self.scores), "passes": passes}
            run.checkpoint.save_piece(f"{name}-unfinished", arrays | progress)

    @torch.no_grad()
    def resume(self, run: Run, name: str) -> None:
        """Continue from the run's checkpoint if it has one for this name."""
        kept = run.checkpoint.load_piece(f"{name}-unfinished")
        if kept is None:
            return
        self.epoch, self.n_epoch_steps, self.n_steps, self.n_averaged = (int(n) for n in kept["counts"][:4])
        self.seconds = float(kept["counts"][4])
        self.scores = kept["scores"].tolist()
        self.passes = [
            Pass(**finished) for finished in json.loads(str(kept.get("passes", "[]")))
        ]  # absent in old pieces
        device = self.recent_norms.device

        def tensors(kind: str) -> list[Tensor]:
            n = sum(name.startswith(f"{kind}-") for name in kept)
            return [torch.from_numpy(kept[f"{kind}-{i}"]).to(device) for i in range(n)]

        torch._foreach_copy_(self.tensors, tensors("now"))
        self.best_tensors, self.average_tensors = tensors("best"), tensors("average")
        self.recent_norms = torch.from_numpy(kept["recent"]).to(device)
        self.total_loss = torch.from_numpy(kept.get("total_loss", np.zeros(()))).to(device)
        for number, optimiser in enumerate(self.optimisers):
            moments: dict[int, dict[str, Any]] = {}
            for name, array in kept.items():
                if name.startswith(f"adam-{number}-"):
                    _, _, i, key = name.split("-")
                    value = torch.from_numpy(array)
                    is_count = key == "step" and isinstance(optimiser, torch.optim.SparseAdam)
                    moments.setdefault(int(i), {})[key] = value.item() if is_count else value
            optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})


def make_optimisers(network: nn.Module, options: TrainingOptions) -> list[torch.optim.Optimizer]:
    """Return AdamW for dense parameters and SparseAdam for embeddings with sparse gradients."""
    sparse_ids = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding) and m.sparse}
    trained = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    dense = group_parameters([(name, p) for name, p in trained if id(p) not in sparse_ids], options)
    sparse = group_parameters([(name, p) for name, p in trained if id(p) in sparse_ids], options)
    fused = dense[0]["params"][0].device.type == "cuda"
    decay = options.weight_decay
    optimisers: list[torch.optim.Optimizer] = [torch.optim.AdamW(dense, options.rate, weight_decay=decay, fused=fused)]
    return optimisers + ([torch.optim.SparseAdam(sparse, options.rate)] if sparse else [])


def group_parameters(parameters: list[tuple[str, Tensor]], options: TrainingOptions) -> list[dict[str, Any]]:
    """Return parameter groups of equal learning rate."""
    rates = dict.fromkeys(options.get_rate(name) for name, _ in parameters)
    return [{"params": [p for name, p in parameters if options.get_rate(name) == rate], "rate": rate} for rate in rates]


@torch.no_grad()
def clip_gradients(parameters: list[Tensor], recent: Tensor) -> Tensor:
    """Clip gradients at 5 times the largest recent norm and return the updated recent norms.

    The new norm is recorded as at most twice the largest recent norm and at most 1, so the limit never exceeds 5.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    values = [
        g._values() if g.is_sparse else g for g in gradients
    ]  # of sparse gradients, the rows before they are summed
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(values)))
    largest = recent.max()
    torch._foreach_mul_(values, (MAX_NORM_RATIO * largest / (norm + 1e-12)).clamp(max=1.0))
    recorded = torch.minimum(norm, MAX_RECORDED_RATIO * largest).clamp(max=1.0)
    return torch.cat([recent[1:], recorded[None]])


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
    """Return training documents, validation documents and device; join the process group and claim the checkpoint.

    Without validation documents, a share of the data is held out; with share=0 there is no validation. The checkpoint
    is bound to the initial word vectors, because a file of the same name may have changed.
    """
    if valid is not None or share:
        data, valid = train_valid_split(data, valid, seed, share)
    device = select_device(run)
    distributed.join_process_group(device)
    if run.checkpoint.folder:
        with distributed.main_process_first():
            valid_fingerprint = valid.fingerprint() if valid else ""
            run.checkpoint.claim(f"{method} {data.fingerprint()} {valid_fingerprint} {fingerprint_array(vectors)}")
    return data, valid, device


def select_stopping_rows(data: Dataset, seed: int, share: float) -> np.ndarray | None:
    """Return the rows that `prepare_training` holds out if no validation documents are given."""
    return sample_labelled_rows(data, seed, share) if share else None


def fingerprint_array(vectors: np.ndarray | None) -> str:
    if vectors is None:
        return ""
    return f"{vectors.shape} {hashlib.blake2b(np.ascontiguousarray(vectors).data, digest_size=16).hexdigest()}"


class Validation(NamedTuple):
    """Validation documents: a function that predicts their best labels, and their true labels."""

    predict: Callable[[Run], Predictions]
    Y: csr_array

    @classmethod
    def from_network(cls, network: LabelNetwork, loader: Loader, Y: csr_array | None) -> Validation:
        assert Y is not None
        return cls(partial(predict_with_network, network, loader, STOPPING_K), Y)


def fit_network(
    network: nn.Module,
    *,
    loader: Loader,
    loss: Callable[[np.ndarray], Tensor | Iterator[Tensor]],
    validation: Validation | None,
    options: TrainingOptions,
    batch: int,
    run: Run,
    name: str = "network",
) -> None:
    """Train a network on the loader's documents.

    Parameters
    ----------
    network : nn.Module
        Network whose parameters are trained in place.
    loader : Loader
        Training documents.
    loss : callable
        Returns the loss of document numbers, see `run_training_loop`.
    validation : Validation or None
        Validation documents for early stopping; None keeps the weights of the last epoch.
    options : TrainingOptions
    batch : int
        Batch size.
    run : Run
    name : str
        Name of the network in events and checkpoints.
    """

    def batches(rng: np.random.Generator) -> Iterator[np.ndarray]:
        return loader.shuffled_batches(batch, rng)

    def score() -> float:
        if validation is None:
            return 0.0  # the last of equal scores is the best
        predictions = validation.predict(run.without_output())
        return evaluate(predictions, validation.Y, [STOPPING_METRIC])[STOPPING_METRIC]

    metric = "" if validation is None else STOPPING_METRIC
    if validation is None:
        options = replace(options, look_every=0)  # keeps the weights after the last step
    threads = choose_thread_count(run, network, batch)
    with use_torch_settings(run, get_network_device(network), options.seed, threads):
        run_training_loop(network, batches, loss, score, options, loader.n_docs, run, name, metric)


def fit_label_network(
    network: nn.Module,
    predictor: LabelNetwork,
    design: Design,
    data: Dataset,
    valid: Dataset | None,
    *,
    options: TrainingOptions,
    batch: int,
    run: Run,
) -> None:
    """Train a network whose forward pass takes a batch and its (row, label) pairs and returns the loss.

    `predictor` is the part of the network that predicts labels; it predicts the validation documents.
    """
    assert data.Y is not None
    device = get_network_device(network)
    loader, labels = design.loader(data, device), LabelLoader(data.Y, device)
    forward = distributed.wrap_network(network)
    validation = None
    if valid is not None:
        validation = Validation.from_network(predictor, design.loader(valid, device), valid.Y)

    def loss(docs: np.ndarray) -> Tensor:
        batch = loader.load_batch(distributed.shard_batch(docs))
        with mixed_precision(device):
            return forward(batch, *labels.label_pairs(batch.docs))

    fit_network(network, loader=loader, loss=loss, validation=validation, options=options, batch=batch, run=run)
