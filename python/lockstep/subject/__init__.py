"""What inspectors look at: values as lists of tensors, samples, steps that are run and undone."""
