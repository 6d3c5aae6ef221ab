"""Requantising parts of a checkpoint on the host: streaming, resumable, with its error measured."""
