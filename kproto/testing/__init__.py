"""For people who test with kproto: what tests need, as a product of its own. Import the modules you use."""
