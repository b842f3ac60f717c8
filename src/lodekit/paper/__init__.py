"""The experiments of the paper, on the public interface."""
