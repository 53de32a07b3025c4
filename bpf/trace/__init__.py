# SPDX-License-Identifier: Apache-2.0
"""One trace as values: what is asked, which programs answer, what was counted, and what it means.

`abi` (bytes), `btf` and `layout` (a kernel's structs), `programs` (what runs where), `compiled`
(what is kept of it), `flowspec`, `request` and `result` (what is asked and answered), `histogram`,
`journey` (where packets vanish).
"""
