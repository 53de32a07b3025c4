# SPDX-License-Identifier: Apache-2.0
"""What a diagnosis was given, recorded, and the same code run over it again."""
