"""The subjects of inspectors: values as lists of tensors, samples, steps that are run and undone."""
