"""Named regions: NVTX ranges whose text says what is inside."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # `import typing` takes longer than all of this package
    from types import TracebackType
    from typing import Any, Callable, Optional, Type, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

# Flags of code that leaves a thread and comes back later, perhaps while another region is open there: a generator, a
# coroutine, an asynchronous generator (Include/cpython/code.h).
_SUSPENDS = 0x20 | 0x80 | 0x200

_unasked = True
_push: Optional[Callable[[bytes], int]] = None
_pop: Optional[Callable[[], int]] = None


class Region:
    """What region() gives: a context manager, and a decorator. Holds no state: it may be kept, shared and nested."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    def __enter__(self) -> "Region":
        if _push is not None:
            _push(self._text)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]] = None,
        error: Optional[BaseException] = None,
        trace: Optional[TracebackType] = None,
    ) -> None:
        if _pop is not None:
            _pop()

    def __call__(self, function: Function) -> Function:
        import functools

        _check_runs_through(function)

        @functools.wraps(function)
        def in_region(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return in_region  # type: ignore[return-value]


class _NoRegion(Region):
    """The region of a process that is not measured."""

    __slots__ = ()

    def __enter__(self) -> "Region":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]] = None,
        error: Optional[BaseException] = None,
        trace: Optional[TracebackType] = None,
    ) -> None:
        pass

    def __call__(self, function: Function) -> Function:
        _check_runs_through(function)
        return function


_NO_REGION = _NoRegion(b"")


def _check_runs_through(function: Callable[..., Any]) -> None:
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & _SUSPENDS:
        raise TypeError(
            f"region: {function.__qualname__} is a generator or a coroutine: it is suspended while other code runs on its "
            "thread; use `with region(...)` around the work between two suspensions"
        )


def region(
    name: str,
    *,
    batch: Optional[int] = None,
    seq_len: Optional[int] = None,
    context: Optional[int] = None,
    new_tokens: Optional[int] = None,
    tokens: Optional[int] = None,
    gen_batch: Optional[int] = None,
    gen_tokens: Optional[int] = None,
) -> Region:
    """A region of the model's work, for `with` or as a decorator: an NVTX push/pop range in the default domain.

    name: `step`, `prefill`, `decode`, `mixed`, or what a rule of the config matches.
    The shape, as far as it is known, in plain integers (a number that is on the GPU would make the program wait for it):
      batch       sequences
      seq_len     new tokens per sequence
      context     tokens per sequence that are in the cache before
      new_tokens  decode passes inside the region, one token per sequence each
      tokens      all tokens, where the rest is not known
      gen_batch, gen_tokens   mixed: sequences that decode in the same pass, and the tokens they feed in

    Any NVTX tool is served: the one that NVTX_INJECTION64_PATH names when the first region is asked for. With none, or
    with NVTX_DISABLE set, nothing happens and the returned object does nothing. Nothing is ever raised about a shape.
    """
    if _unasked:
        _find_tool()
    if _push is None:
        return _NO_REGION
    text = name
    if batch is not None:
        text += f" batch={batch}"
    if seq_len is not None:
        text += f" seq_len={seq_len}"
    if context is not None:
        text += f" context={context}"
    if new_tokens is not None:
        text += f" new_tokens={new_tokens}"
    if tokens is not None:
        text += f" tokens={tokens}"
    if gen_batch is not None:
        text += f" gen_batch={gen_batch}"
    if gen_tokens is not None:
        text += f" gen_tokens={gen_tokens}"
    return Region(text.encode("utf-8", "replace"))


def _find_tool() -> None:
    global _unasked, _push, _pop
    from ._nvtx import attach

    functions = attach()
    if functions is not None:
        _push, _pop = functions
    _unasked = False
