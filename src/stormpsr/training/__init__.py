"""Training of the spatio-temporal stream: data, the three stages, and the one `fit` they share."""

from stormpsr.models.backbones import make_torchvision_importable

make_torchvision_importable()  # Lightning imports it, too
