"""What games of moving discs share: the physics of MPE (mpe2 1.1.1) for many copies, and more."""
