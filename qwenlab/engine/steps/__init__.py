"""Programs that finish a release: run on the host by the release's interpreter, standard library only."""
