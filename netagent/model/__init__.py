# SPDX-License-Identifier: Apache-2.0
"""The nouns: frozen facts and typed errors. Imports the standard library only."""
