"""Numbered jobs: done by processes of this machine (`pool`), and recorded so that a run goes on (`journal`)."""
