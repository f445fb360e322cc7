"""The recorder of `lockstep compare`."""
