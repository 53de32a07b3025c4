# SPDX-License-Identifier: Apache-2.0
"""The running kernel: what it is, and programs at work in it.

`host` reads what programs must know, `libbcc` is the door to bcc, `loader` attaches and reads,
`cache` keeps on disk what was costly.
"""
