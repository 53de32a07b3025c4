# SPDX-License-Identifier: Apache-2.0
"""A real `serve`, in real time, under the load of a simulated fleet."""
