"""Primal solver for dense and unscaled features: Newton's method with conjugate gradients for a block of labels.

Lin, Weng, Keerthi 2008 (in LIBLINEAR as `dual=False`), with a line search instead of a trust region. Dual coordinate
descent needs thousands of passes if C ‖x‖² is large and documents are similar, as with dense features; Newton steps do
not depend on their scale. All labels of a block share the products with the documents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

MAX_DENSE_BYTES = 1 << 31  # of a dense copy of the documents; larger ones stay sparse
MIN_DENSE_SHARE = 0.1  # share of non-zero features from which a dense copy is faster
GRADIENT_REDUCTION = 0.1  # of the residual of a Newton equation, relative to the gradient
MAX_GRADIENT_STEPS = 100  # conjugate gradients per Newton step
MAX_HALVINGS = 30  # of a Newton step
LIBLINEAR_EPS = 0.01  # tolerance from which a classifier has converged
SUFFICIENT_DECREASE = 1e-4  # of the objective, relative to the linear prediction (Armijo)


class NewtonProblem(NamedTuple):
    """Documents with a column of ones for the bias, and the signs and costs of some labels."""

    X: np.ndarray | csr_array  # (n_docs, n_features + 1) float64
    signs: np.ndarray  # (n_docs, n_labels)
    costs: np.ndarray  # (n_docs, n_labels): C times the weight of the document and the factor of the label
    is_logistic: bool

    def select_labels(self, labels: np.ndarray) -> NewtonProblem:
        return self._replace(signs=self.signs[:, labels], costs=self.costs[:, labels])

    def compute_losses(self, margins: np.ndarray) -> np.ndarray:
        """Return the sum of the losses of each label."""
        if self.is_logistic:
            return (self.costs * np.logaddexp(0, -margins)).sum(axis=0)
        return (self.costs * np.maximum(0, 1 - margins) ** 2).sum(axis=0)

    def compute_slopes(self, margins: np.ndarray) -> np.ndarray:
        if self.is_logistic:
            return -self.costs * compute_sigmoid(-margins)
        return -2 * self.costs * np.maximum(0, 1 - margins)

    def compute_curvatures(self, margins: np.ndarray) -> np.ndarray:
        if self.is_logistic:
            probabilities = compute_sigmoid(margins)
            return self.costs * probabilities * (1 - probabilities)
        return 2 * self.costs * (margins < 1)


def compute_sigmoid(values: np.ndarray) -> np.ndarray:
    from scipy.special import expit  # imported here, because prediction does not need it

    return expit(values)


def add_bias_column(X: csr_array) -> np.ndarray | csr_array:
    """Return the documents with a last column of ones as float64, dense if that is faster."""
    n_docs, n_features = X.shape
    if X.nnz >= MIN_DENSE_SHARE * n_docs * n_features and 8 * n_docs * (n_features + 1) <= MAX_DENSE_BYTES:
        dense = np.ones((n_docs, n_features + 1))
        dense[:, :-1] = X.toarray()
        return dense
    indptr = X.indptr.astype(np.int64) + np.arange(n_docs + 1)
    indices, data = (np.insert(array, X.indptr[1:], value) for array, value in ((X.indices, n_features), (X.data, 1)))
    return csr_array((data.astype(np.float64), indices.astype(np.int64), indptr), shape=(n_docs, n_features + 1))


def solve_by_newton(problem: NewtonProblem, eps: float, max_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights, shape (n_features + 1, n_labels), and two numbers: the maximum number of steps, and the share
    of labels whose gradient is still above the tolerance of LIBLINEAR (with a larger eps, above that of eps)."""
    n_labels = problem.signs.shape[1]
    W = np.zeros((problem.X.shape[1], n_labels))
    margins, tolerance = np.zeros(problem.signs.shape), np.zeros(n_labels)
    n_positive = (problem.signs > 0).sum(axis=0)
    n_docs = len(problem.signs)  # 0 for a node whose labels have no documents: the weights stay 0
    rarer = np.maximum(np.minimum(n_positive, n_docs - n_positive), 1) / max(n_docs, 1)
    labels, n_steps, lengths = np.arange(n_labels), 0, np.zeros(n_labels)
    for n_steps in range(max_steps + 1):
        part, part_margins = problem.select_labels(labels), margins[:, labels]
        gradient = W[:, labels] + problem.X.T @ (part.signs * part.compute_slopes(part_margins))
        lengths[labels] = np.sqrt((gradient**2).sum(axis=0))
        if n_steps == 0:
            tolerance = rarer * lengths
        is_open = lengths[labels] > eps * tolerance[labels]
        if not is_open.any() or n_steps == max_steps:
            break
        labels, part, part_margins = labels[is_open], part.select_labels(is_open), part_margins[:, is_open]
        direction = compute_newton_direction(part, part_margins, gradient[:, is_open])
        change = part.signs * (problem.X @ direction)
        rates = search_line(part, W[:, labels], part_margins, gradient[:, is_open], direction, change)
        W[:, labels] += rates * direction
        margins[:, labels] += rates * change
        labels = labels[rates > 0]  # for the others, no decrease is left within the precision of the objective
        if not len(labels):
            break
    return W, np.array([n_steps, np.mean(lengths > max(eps, LIBLINEAR_EPS) * tolerance)], np.float32)


def compute_newton_direction(problem: NewtonProblem, margins: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Solve (I + Xᵀ D X) v = −gradient for each label by conjugate gradients."""
    curvatures = problem.compute_curvatures(margins)
    direction, residual = np.zeros_like(gradient), -gradient
    conjugate, squares = residual.copy(), (residual**2).sum(axis=0)
    limits = GRADIENT_REDUCTION**2 * squares
    for _ in range(MAX_GRADIENT_STEPS):
        product = conjugate + problem.X.T @ (curvatures * (problem.X @ conjugate))
        rates = np.where(squares > limits, squares / np.maximum((conjugate * product).sum(axis=0), 1e-300), 0)
        direction += rates * conjugate
        residual -= rates * product
        previous, squares = squares, np.where(rates > 0, (residual**2).sum(axis=0), squares)
        if (squares <= limits).all():
            break
        conjugate = residual + squares / np.maximum(previous, 1e-300) * conjugate
    return direction


def search_line(
    problem: NewtonProblem,
    W: np.ndarray,
    margins: np.ndarray,
    gradient: np.ndarray,
    direction: np.ndarray,
    change: np.ndarray,
) -> np.ndarray:
    """Return the largest of 1, ½, ¼ … that decreases the objective of each label sufficiently; 0 if none does."""
    start, slope = problem.compute_losses(margins), (gradient * direction).sum(axis=0)
    products, squares = (W * direction).sum(axis=0), (direction**2).sum(axis=0)
    rates, is_open = np.ones(len(slope)), np.ones(len(slope), bool)
    for _ in range(MAX_HALVINGS):
        increase = problem.compute_losses(margins + rates * change) - start
        increase += rates * products + rates**2 * squares / 2
        is_open &= ~(increase <= SUFFICIENT_DECREASE * rates * slope)
        if not is_open.any():
            return rates
        rates = np.where(is_open, rates / 2, rates)
    return np.where(is_open, 0, rates)
