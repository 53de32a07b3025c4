# SPDX-License-Identifier: Apache-2.0
"""What a verdict asks others to do: proposed, held back, done and undone, each with its record."""
