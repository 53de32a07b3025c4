# SPDX-License-Identifier: Apache-2.0
"""Kernel programs that trace the virtual switch, and the worker that runs them (docs/tracing.md).

`worker` is a process of its own, the only one to import bcc, behind `loader`. The rest is values:
`abi` (bytes), `btf` and `layout` (this kernel's structs), `programs` (what runs where), `flowspec`,
`request` and `result` (what is asked and answered), `journey` (where packets vanish).
"""
