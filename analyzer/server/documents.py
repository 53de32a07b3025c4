# SPDX-License-Identifier: Apache-2.0
"""What the OpenAPI document says beyond the handlers' signatures: bodies, with examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import msgspec
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import (
    Example,
    OpenAPIMediaType,
    Operation,
    RequestBody,
    Schema,
)

import netagent
from netagent.wire.codec import ContentType


class ErrorBody(msgspec.Struct, frozen=True):
    """Every answer that is not what was asked for."""

    error: str
    """What is wrong."""
    remedy: str
    """What to do about it."""


def takes(
    kind: Any,
    example: object,
    *,
    forms: tuple[ContentType, ...],
    more: Mapping[str, object] = MappingProxyType({}),
) -> type[Operation]:
    """Return the operation class of a route whose body is a `kind`; `more` are named examples."""
    [schema], parts = msgspec.json.schema_components([kind])
    inlined = cast(
        "Schema", _inline(schema, parts)
    )  # Litestar drops components that it did not make
    media = {
        form.value: OpenAPIMediaType(
            schema=inlined,
            examples={
                name: Example(value=value)
                for name, value in {kind.__name__: example, **more}.items()
            },
        )
        for form in forms
    }

    @dataclass
    class Documented(Operation):
        def __post_init__(self) -> None:
            self.request_body = RequestBody(content=media, required=True)

    return Documented


def gives(
    description: str, kind: Any = dict[str, Any], example: object | None = None
) -> ResponseSpec:
    """Return what a route answers when all is well."""
    examples = [Example(value=example)] if example is not None else None
    return ResponseSpec(
        data_container=kind, description=description, examples=examples, generate_examples=False
    )


PROBLEM = ResponseSpec(
    data_container=ErrorBody,
    description="Refused; says why and what to do.",
    generate_examples=False,
)


def config() -> OpenAPIConfig:
    """Return the document's frame."""
    return OpenAPIConfig(
        title="netagent analyzer",
        version=netagent.__version__,
        description="Finds in seconds which network component stalls a training task.",
        use_handler_docstrings=True,
        path="/schema",
        render_plugins=[JsonRenderPlugin()],
    )


# `schema` with every reference replaced by what it refers to; no message contains itself.
def _inline(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inline(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {key: _inline(value, parts) for key, value in schema.items() if key != "discriminator"}
