"""Statistics of files: conversion between JSON text and typed columns."""
