# SPDX-License-Identifier: Apache-2.0
"""Kernel programs that trace the virtual switch, and the worker that runs them (docs/tracing.md).

`worker` is a process of its own. `kernel` reads this kernel and loads programs into it: the only
room that imports bcc. `trace` is values: what is asked, run and counted, and where packets vanish.
"""
