"""Two loops over a block of weights (features × labels), generated as LLVM vector instructions.

A compiler vectorises a loop over labels, but stores its sums after every feature and loads them for the next. Here the
sums of up to 48 labels stay in registers while all features of a document are added, which saves a quarter of the
training time of a leaf. Features with even and odd positions have separate sums, because each addition waits for the
one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 8  # labels per vector register
MAX_TILE_VECTORS = 6  # vectors per tile; each needs two registers for its sums, and AVX2 has 16

INT32, INT64 = ir.IntType(32), ir.IntType(64)
VECTOR = ir.VectorType(ir.FloatType(), LANES)
ZERO_VECTOR = ir.Constant(VECTOR, [0.0] * LANES)


@intrinsic
def accumulate_rows(typing_context, indices, data, begin, end, W, first, n_vectors, total):
    """Add Σ data[i] × W[indices[i], first:] for i in begin:end to total[first:], for `n_vectors` vectors of labels, at
    most MAX_TILE_VECTORS. Callable in a kernel."""

    def generate_tile(loops: LoopBuilder, n: int) -> None:
        even, odd = ([loops.make_variable(ZERO_VECTOR) for _ in range(n)] for _ in range(2))

        def add(i: Any, sums: list) -> None:
            value, pointers = loops.load_row(i, n)
            for pointer, total in zip(pointers, sums, strict=True):
                product = loops.multiply_add(value, loops.load_vector(pointer), loops.load_variable(total))
                loops.store_variable(total, product)

        last = loops.even_end()
        with loops.loop_over(loops.begin, last, 2) as i:
            add(i, even)
            add(loops.builder.add(i, INT64(1)), odd)
        with loops.loop_over(last, loops.end, 1) as i:
            add(i, even)
        for pointer, even_sum, odd_sum in zip(loops.label_pointers(n), even, odd, strict=True):
            both = loops.builder.fadd(loops.load_variable(even_sum), loops.load_variable(odd_sum))
            loops.store_vector(loops.builder.fadd(loops.load_vector(pointer), both), pointer)

    return make_signature(indices, data, W, total), generate_switch(generate_tile)


@intrinsic
def scatter_to_rows(typing_context, indices, data, begin, end, W, first, n_vectors, step):
    """Add data[i] × step[first:] to W[indices[i], first:] for i in begin:end. Callable in a kernel."""

    def generate_tile(loops: LoopBuilder, n: int) -> None:
        steps = [loops.load_vector(pointer) for pointer in loops.label_pointers(n)]
        with loops.loop_over(loops.begin, loops.end, 1) as i:
            value, pointers = loops.load_row(i, n)
            for pointer, step in zip(pointers, steps, strict=True):
                loops.store_vector(loops.multiply_add(value, step, loops.load_vector(pointer)), pointer)

    return make_signature(indices, data, W, step), generate_switch(generate_tile)


def make_signature(indices: Any, data: Any, W: Any, labels: Any) -> Any:
    return types.void(indices, data, types.int64, types.int64, W, types.int64, types.int64, labels)


def generate_switch(generate_tile: Any) -> Any:
    """Return a code generator with one branch per number of vectors, selected at run time."""

    def generate(context, builder, signature, arguments):
        loops = LoopBuilder(context, builder, signature, arguments)
        after = builder.append_basic_block("after")
        switch = builder.switch(arguments[6], after)
        for n in range(1, MAX_TILE_VECTORS + 1):
            case = builder.append_basic_block(f"vectors_{n}")
            switch.add_case(n, case)
            builder.position_at_end(case)
            generate_tile(loops, n)
            builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return generate


class LoopBuilder:
    """Builder of LLVM instructions for both loops, given their shared arguments."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        arrays = {i: context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 1, 4, 7)}
        self.indices, self.data, self.W, self.labels = (array.data for array in arrays.values())
        self.width = builder.extract_value(arrays[4].shape, 1)
        self.begin, self.end, self.first = arguments[2], arguments[3], arguments[5]
        function_type = ir.FunctionType(VECTOR, [VECTOR] * 3)
        self.multiply_add_function = cgutils.get_or_insert_function(
            builder.module, function_type, f"llvm.fmuladd.v{LANES}f32"
        )

    def make_variable(self, value: Any) -> Any:
        """Return a variable that the compiler keeps in a register."""
        variable = cgutils.alloca_once(self.builder, VECTOR)
        self.store_variable(variable, value)
        return variable

    def load_variable(self, variable: Any) -> Any:
        return self.builder.load(variable)

    def store_variable(self, variable: Any, value: Any) -> None:
        self.builder.store(value, variable)

    def load_vector(self, pointer: Any) -> Any:
        return self.builder.load(pointer, align=4)

    def store_vector(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, pointer, align=4)

    def multiply_add(self, factor: Any, vector: Any, addend: Any) -> Any:
        return self.builder.call(self.multiply_add_function, [factor, vector, addend])

    def even_end(self) -> Any:
        """Return the end of the features, less one if their number is odd."""
        length = self.builder.sub(self.end, self.begin)
        return self.builder.sub(self.end, self.builder.and_(length, INT64(1)))

    def loop_over(self, begin: Any, end: Any, step: int) -> Any:
        return loop_over_range(self.builder, begin, end, step)

    def load_row(self, i: Any, n: int) -> tuple[Any, list]:
        """Return data[i] broadcast to all lanes, and pointers to the weights of its feature."""
        builder = self.builder
        feature = builder.zext(builder.load(builder.gep(self.indices, [i])), INT64)
        value = builder.load(builder.gep(self.data, [i]))
        single = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, INT32(0))
        lanes = builder.shuffle_vector(single, single, ir.Constant(ir.VectorType(INT32, LANES), [0] * LANES))
        return lanes, self._vector_pointers(self.W, builder.add(builder.mul(feature, self.width), self.first), n)

    def label_pointers(self, n: int) -> list:
        """Return pointers into the array with one number per label."""
        return self._vector_pointers(self.labels, self.first, n)

    def _vector_pointers(self, array: Any, offset: Any, n: int) -> list:
        pointers = [self.builder.gep(array, [self.builder.add(offset, INT64(LANES * k))]) for k in range(n)]
        return [self.builder.bitcast(pointer, VECTOR.as_pointer()) for pointer in pointers]


@contextmanager
def loop_over_range(builder: Any, begin: Any, end: Any, step: int) -> Iterator[Any]:
    with cgutils.for_range_slice(builder, begin, end, INT64(step)) as (i, _):
        yield i
