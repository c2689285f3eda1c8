"""Who acts beside the learning agent: scripted players, checkpointed policies, pools."""
