"""A small real model served by a prefill engine and a decode engine, whose KV pages move by `kvtransfer`."""
