"""StarCraft II over the packages `smac` and `smacv2`, where they and the game are installed."""
